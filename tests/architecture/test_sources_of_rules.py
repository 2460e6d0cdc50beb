"""Comments name the sources of their rules, and these are in the repository."""

import re

from tests.architecture.source_files import ROOT, code_files, place, python_files

_PAGE = re.compile(r"(?<![\w/.-])(docs/[\w/.-]+\.md)")
_GUARD = re.compile(r"(?:docs/contributing/guards\.md|Guard) ([SF]\d+)(?:, ([SF]\d+))?(?:, ([SF]\d+))?")
_OTHER_PAPER = re.compile(r"\b(?!docs/|README|CONTRIBUTING|CHANGELOG)[\w-]+\.md section \d")


def test_pages_and_guards_that_comments_name_exist() -> None:
    guards = (ROOT / "docs" / "contributing" / "guards.md").read_text(encoding="utf-8")
    wrong, actual = [], 0
    for path in [*code_files(), *python_files("tests", "benchmarks", "scripts")]:
        text = path.read_text(encoding="utf-8")
        for page in _PAGE.findall(text):
            actual += 1
            if not (ROOT / page).is_file():
                wrong.append(f"{place(path)}: {page}")
        for guard in filter(None, (name for match in _GUARD.finditer(text) for name in match.groups())):
            actual += 1
            if f"| {guard} |" not in guards:
                wrong.append(f"{place(path)}: guard {guard}")
        wrong += [f"{place(path)}: {match[0]}" for match in _OTHER_PAPER.finditer(text)]
    assert actual > 60
    assert wrong == []
