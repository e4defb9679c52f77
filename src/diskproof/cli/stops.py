"""Signals that end a verb in order. None is lost on the way: what their handler raises would be,
in the import of an extension and wherever Python itself has nobody to raise it to."""

import _thread
import signal
import sys
import threading
import time
import types

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_SECONDS = 0.02
_IMPORTING = "<frozen importlib._bootstrap>"


class Stops:
    """``heard`` has the numbers of those that came."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def listen(self) -> None:
        """A closed terminal and a service manager's stop deserve the same clean end as Ctrl-C: all
        raise KeyboardInterrupt. What was ignored when we began (nohup) stays so."""
        for number in STOPS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._stop)
        before = sys.unraisablehook

        def tell(lost: "sys.UnraisableHookArgs") -> None:
            # Raised in a destructor, say, and thrown away there.
            if issubclass(lost.exc_type, KeyboardInterrupt) and self.heard:
                _send_again(self.heard[-1])
            else:
                before(lost)

        sys.unraisablehook = tell

    def _stop(self, number: int, frame: types.FrameType | None) -> None:
        self.heard.append(number)
        if _is_importing(frame):
            # Extensions take it for a module that is not there (scipy's "initialization failed"),
            # or do without that module.
            _send_again(number)
        else:
            raise KeyboardInterrupt


def _is_importing(frame: types.FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            return True
        frame = frame.f_back
    return False


def _send_again(number: int) -> None:
    """In a moment, to the main thread: it may wait for a program by then."""
    main = threading.main_thread().ident
    assert main is not None

    def send() -> None:
        time.sleep(_AGAIN_SECONDS)
        signal.pthread_kill(main, number)

    # What `threading` has around it may be held where the signal came.
    _thread.start_new_thread(send, ())
