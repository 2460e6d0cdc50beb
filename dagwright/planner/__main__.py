"""Writes the published response format of the planner: `python -m dagwright.planner [--check]`."""

import argparse
import sys

from dagwright.planner.schema import RESPONSE_FILE, schema_text


def main() -> int:
    """Writes the file, or with `--check` tells by the exit code whether it is fresh."""
    parser = argparse.ArgumentParser(prog="python -m dagwright.planner", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is not fresh")
    if not parser.parse_args().check:
        RESPONSE_FILE.write_text(schema_text(), encoding="utf-8")
        return 0
    if RESPONSE_FILE.is_file() and RESPONSE_FILE.read_text(encoding="utf-8") == schema_text():
        return 0
    sys.stderr.write(f"docs/planner/{RESPONSE_FILE.name} is not what the model says; run: make docs-schema\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
