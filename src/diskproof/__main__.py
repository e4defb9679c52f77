"""Entry point. ``--version`` answers before anything heavy is imported."""

import os
import sys


def main() -> int:
    """Run the command line; returns the exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from diskproof import __version__

        try:
            os.write(1, f"diskproof {__version__}\n".encode())
        except BrokenPipeError:
            pass  # the reader wants no version
        except OSError:
            return 3
        return 0
    try:
        from diskproof.cli import run_command_line

        return run_command_line(sys.argv[1:])
    except KeyboardInterrupt:  # before the verbs are there to take it
        return 130


if __name__ == "__main__":
    sys.exit(main())
