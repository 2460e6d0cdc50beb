"""Write the published catalogue of the verbs: `python -m dagwright_onboarding [--check]`."""

import argparse
import sys

from dagwright_onboarding.verb_catalogue import CATALOGUE_FILE, catalogue_text


def main() -> int:
    """Write the file; with `--check`, return 1 if the file is out of date."""
    parser = argparse.ArgumentParser(prog="python -m dagwright_onboarding", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is out of date")
    if not parser.parse_args().check:
        CATALOGUE_FILE.write_text(catalogue_text(), encoding="utf-8")
        return 0
    if CATALOGUE_FILE.is_file() and CATALOGUE_FILE.read_text(encoding="utf-8") == catalogue_text():
        return 0
    sys.stderr.write(f"docs/{CATALOGUE_FILE.name} is out of date; run: make docs-schema\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
