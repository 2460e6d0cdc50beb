"""Write the published response formats of the planner: `python -m dagwright.planner [--check]`."""

import argparse
import sys

from dagwright.planner.intents_schema import INTENTS_FILE, intents_schema
from dagwright.planner.rounds_schema import ROUNDS_FILE, rounds_schema
from dagwright.planner.schema import RESPONSE_FILE, response_schema, schema_text


def main() -> int:
    """Write the files, or with `--check` return exit code 1 if a file is out of date."""
    parser = argparse.ArgumentParser(prog="python -m dagwright.planner", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    is_checking = parser.parse_args().check
    code = 0
    formats = ((RESPONSE_FILE, response_schema), (INTENTS_FILE, intents_schema), (ROUNDS_FILE, rounds_schema))
    for file, build_schema in formats:
        text = schema_text(build_schema())
        if not is_checking:
            file.write_text(text, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"docs/reference/schemas/planner/{file.name} is out of date; run: make docs-schema\n")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
