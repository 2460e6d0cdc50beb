"""The program `dagwright`, which is also `python -m dagwright`."""

import sys

try:
    from dagwright.interfaces.cli.app import run_command_line
    from dagwright.interfaces.cli.error_boundary import end_process
except KeyboardInterrupt:
    # No command has started.
    sys.exit(130)


def main() -> None:
    """Run the command of the command line and exit with its code."""
    end_process(run_command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
