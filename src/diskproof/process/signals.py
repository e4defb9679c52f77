"""Signals that wait until a step is whole."""

# The core of `signal`: what its functions do beside that takes lines, between which signals come.
import _signal as core  # type: ignore[import-not-found]
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIGALRM, SIGHUP, SIGINT, SIGTERM

STOPS = (SIGINT, SIGTERM, SIGHUP, SIGALRM)


@contextmanager
def signals_wait(cancel: Callable[[], object] = lambda: None) -> Iterator[None]:
    """What a signal's handler raises in the middle of the block may be lost there, or leave others'
    objects in pieces. So the first signal only calls ``cancel``, and is handled afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # where no handler runs
        return
    heard: list[int] = []

    def note(number: int, _: object) -> None:
        heard.append(number)
        cancel()

    ours = [(number, handler) for number in STOPS if callable(handler := core.getsignal(number))]
    before = core.pthread_sigmask(core.SIG_BLOCK, ())
    try:
        # They stay out while handlers change hands; one that another thread took may still come.
        core.pthread_sigmask(core.SIG_BLOCK, STOPS)
        for number, _ in ours:
            core.signal(number, note)
        core.pthread_sigmask(core.SIG_SETMASK, before)
        yield
    finally:
        core.pthread_sigmask(core.SIG_BLOCK, STOPS)
        for number, handler in ours:
            core.signal(number, handler)
        core.pthread_sigmask(core.SIG_SETMASK, before)
        if heard:
            core.raise_signal(heard[0])
