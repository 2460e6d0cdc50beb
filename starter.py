"""The client script: starts runs of plans and looks at them. `dagwright` on the path is the same program."""

import sys

try:
    from dagwright.interfaces.cli.app import run_command_line
    from dagwright.interfaces.cli.edge import leave
except ModuleNotFoundError as error:
    # Whoever types `python starter.py` in a fresh checkout has another Python than the one `make setup` prepares.
    sys.exit(f"{error.name} is not installed here: run `make setup`, then use .venv/bin/python starter.py")
except KeyboardInterrupt:
    # Nothing has begun.
    sys.exit(130)


def main() -> None:
    """Runs the command of the command line and exits with its code."""
    leave(run_command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
