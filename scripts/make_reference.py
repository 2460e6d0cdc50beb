"""Write the generated pages of the documentation: `python scripts/make_reference.py [--check]`.

A generated page has no text of its own: change its source, then run `make docs-reference`.
"""

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
_DECISION = re.compile(
    r"# (?P<number>\d+)\. (?P<title>.+)\n\nArea: (?P<area>\w+)\. Status: (?P<status>.+)\.\n\n(?P<summary>.+)\n"
)
"""First lines of a decision."""


def main() -> int:
    """Write the pages; with `--check`, report pages that are out of date and return exit code 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    is_checking = parser.parse_args().check
    stale = [path for path, text in _pages().items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if is_checking:
            sys.stderr.write(f"{path.relative_to(ROOT)} is out of date; run: make docs-reference\n")
        else:
            path.write_text(_pages()[path], encoding="utf-8")
    return 1 if stale and is_checking else 0


def _pages() -> Mapping[Path, str]:
    return {DOCS / "decisions" / "index.md": decisions_page()}


def decisions_page() -> str:
    """Return the index of decisions.

    Raises:
        ValueError: a decision does not start with its title, area, status and summary.
    """
    rows = []
    for path in sorted((DOCS / "decisions").glob("[0-9]*.md")):
        first = _DECISION.match(path.read_text(encoding="utf-8"))
        if first is None:
            raise ValueError(
                f"{path.relative_to(ROOT)}: expected `# N. Title`, `Area: AREA. Status: STATUS.` and one sentence, "
                "with an empty line after each"
            )
        link = f"[{first['title']}]({path.name})"
        rows.append((first["number"], link, first["area"], first["status"], first["summary"]))
    about = "Each page has a question, the choice, the rejected options, and what would prove the choice wrong."
    return f"# Decisions\n\n{about}\n\n{_table(('Number', 'Decision', 'Area', 'Status', 'In one sentence'), rows)}"


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
