"""The client script: starts runs of plans and looks at them. `dagwright` on the path is the same program."""

import os
import sys

from dagwright.cli.app import run_command_line


def main() -> None:
    """Runs the command of the command line and exits with its code (contract.md section 7)."""
    code = run_command_line(sys.argv[1:])
    if "temporalio" not in sys.modules:
        sys.exit(code)
    # Threads of the SDK's core still send log lines and metrics while the interpreter shuts down, which then ends
    # in `Fatal Python error: PyGILState_Release`. Everything of ours is closed by now, so there is nothing to shut.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
