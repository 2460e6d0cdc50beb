"""`python -m dagwright`: the same program as `dagwright` on the path, for where that is not on it."""

import sys

from dagwright.interfaces.cli.app import run_command_line
from dagwright.interfaces.cli.edge import leave

if __name__ == "__main__":
    leave(run_command_line(sys.argv[1:]))
