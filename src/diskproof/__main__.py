"""Entry point. ``--version`` answers before anything heavy is imported."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; returns the exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from diskproof import __version__

        print(f"diskproof {__version__}")
        return 0
    from diskproof.cli import run_command_line

    return run_command_line(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
