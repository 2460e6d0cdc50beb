"""The client script: starts runs of plans and looks at them. `dagwright` on the path is the same program."""

import sys

try:
    from dagwright.__main__ import main
except ModuleNotFoundError as error:
    # Whoever types `python starter.py` in a fresh checkout has another Python than the one `make setup` prepares.
    sys.exit(f"{error.name} is not installed here: run `make setup`, then use .venv/bin/python starter.py")

if __name__ == "__main__":
    main()
