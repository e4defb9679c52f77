"""Entry point. Signals are heard before anything else is done, and ``--version`` answers before
anything heavy is imported."""

# The core of `signal`, whose enumerations alone would double the start-up.
import _signal as signal  # type: ignore[import-not-found]
import os
import sys

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Run the command line; returns the exit code."""
    for number in STOPS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup, or a shell's background
            signal.signal(number, _stop_early)
    # Until here our start script keeps Ctrl-C waiting: the interpreter itself bears it badly.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
    try:
        return _answer()
    except KeyboardInterrupt:  # a second one, while the first was told of
        return 130
    finally:  # what is done is done: the interpreter's own end would answer with a traceback
        for number in STOPS:
            signal.signal(number, signal.SIG_IGN)


def _stop_early(number: int, frame: object) -> None:
    """End at once, in the middle of whatever is imported: nothing has begun."""
    try:
        os.write(2, b"diskproof: interrupted before anything began; the same command begins it\n")
    finally:
        os._exit(128 + number)


def _answer() -> int:
    if sys.argv[1:] in (["--version"], ["-V"]):
        from diskproof import __version__

        try:
            os.write(1, f"diskproof {__version__}\n".encode())
        except BrokenPipeError:
            pass  # the reader wants no version
        except OSError:
            return 3
        return 0
    from diskproof.cli import run_command_line

    return run_command_line(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
