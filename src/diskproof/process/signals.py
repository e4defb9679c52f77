"""Signals that wait until a step is whole."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)


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

    before = {number: signal.getsignal(number) for number in STOPS}
    ours = {number: handler for number, handler in before.items() if callable(handler)}
    for number in ours:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
        if heard:
            signal.raise_signal(heard[0])
