"""The pages and guards that are named in comments exist in the repository."""

import re

from tests.architecture.source_files import ROOT, code_files, python_files, relative_path

_PAGE = re.compile(r"(?<![\w/.-])(docs/[\w/.-]+\.md)")
_GUARD = re.compile(r"(?:docs/contributing/guards\.md|Guard) ([SF]\d+)(?:, ([SF]\d+))?(?:, ([SF]\d+))?")
_SECTION_OF_UNKNOWN_PAGE = re.compile(r"\b(?!docs/|README|CONTRIBUTING|CHANGELOG)[\w-]+\.md section \d")
"""Section of a page that is not in the repository."""


def test_pages_and_guards_named_in_comments_exist() -> None:
    guards = (ROOT / "docs" / "contributing" / "guards.md").read_text(encoding="utf-8")
    missing, reference_count = [], 0
    for path in [*code_files(), *python_files("tests", "benchmarks", "scripts")]:
        text = path.read_text(encoding="utf-8")
        for page in _PAGE.findall(text):
            reference_count += 1
            if not (ROOT / page).is_file():
                missing.append(f"{relative_path(path)}: {page}")
        for guard in filter(None, (name for match in _GUARD.finditer(text) for name in match.groups())):
            reference_count += 1
            if f"| {guard} |" not in guards:
                missing.append(f"{relative_path(path)}: guard {guard}")
        missing += [f"{relative_path(path)}: {match[0]}" for match in _SECTION_OF_UNKNOWN_PAGE.finditer(text)]
    assert reference_count > 60
    assert missing == []
