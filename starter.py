"""Client script: start and inspect runs. The installed command `dagwright` is the same program."""

import sys

try:
    from dagwright.__main__ import main
except ModuleNotFoundError as error:
    # In a fresh checkout, `python` is not the interpreter that `make setup` prepares.
    sys.exit(f"{error.name} is not installed here: run `make setup`, then use .venv/bin/python starter.py")

if __name__ == "__main__":
    main()
