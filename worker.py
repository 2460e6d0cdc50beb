"""The worker script: serves runs and tools. `dagwright worker` is the same program."""

import sys

from dagwright.interfaces.cli.app import run_command_line
from dagwright.interfaces.cli.error_boundary import end_process

if __name__ == "__main__":
    end_process(run_command_line(["worker", *sys.argv[1:]]))
