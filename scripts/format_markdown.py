"""Format Markdown: one sentence per line, and one style for lists, tables and code.

    python scripts/format_markdown.py [--check] [PATH ...]

Without paths, the script formats the files in `FORMATTED_PATHS`.
"""

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import mdformat

ROOT = Path(__file__).resolve().parents[1]

FORMATTED_PATHS = (
    "README.md",
    "CONTRIBUTING.md",
    "docs",
    "examples",
    "benchmarks/README.md",
    "benchmarks/planning/README.md",
    "apps/maritime/README.md",
    "apps/maritime/docs",
    "apps/onboarding/README.md",
    "apps/onboarding/docs",
)
"""Files and folders whose format is checked."""

_EXTENSIONS = ("gfm", "tables", "mkdocs", "slw")
_OPTIONS = {
    "wrap": "no",
    "number": True,
    "compact_tables": True,
    "align_semantic_breaks_in_lists": True,
    "no_mkdocs_math": True,
    # A line ends where a sentence ends, and nowhere else.
    "slw_wrap": 0,
    "slw_min_line": 0,
    "lang": "en",
}


def main() -> int:
    """Format the files; with `--check`, report the files that are not formatted and return exit code 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is not formatted")
    parser.add_argument("paths", nargs="*", help="files and folders; default: the files that are checked")
    options = parser.parse_args()
    changed_files = list(_changed_files(options.paths or FORMATTED_PATHS))
    for path, text in changed_files:
        if options.check:
            sys.stderr.write(f"{path.relative_to(ROOT)} is not formatted; run: make docs-format\n")
        else:
            path.write_text(text, encoding="utf-8")
    return 1 if changed_files and options.check else 0


def _changed_files(path_texts: Sequence[str]) -> Iterator[tuple[Path, str]]:
    for path_text in path_texts:
        target = ROOT / path_text
        for path in sorted(target.rglob("*.md")) if target.is_dir() else [target]:
            text = path.read_text(encoding="utf-8")
            formatted_text = format_markdown(text)
            if formatted_text != text:
                yield path, formatted_text


def format_markdown(text: str) -> str:
    """Return a Markdown text in the format of the documentation."""
    # Hide the warning that mdformat joins lines: joining is intended, since sentences are separated afterwards.
    logging.getLogger("mdformat_slw").setLevel(logging.ERROR)
    return mdformat.text(text, options=_OPTIONS, extensions=_EXTENSIONS)


if __name__ == "__main__":
    sys.exit(main())
