"""The table of guards has every test of `test_guards_*.py`, and each row names tests that exist."""

import re

from tests.architecture.source_files import ROOT, python_files, relative_path

_TABLE = ROOT / "docs" / "contributing" / "guards.md"
_ROW = re.compile(r"^\| ([SF]\d+) \|", re.MULTILINE)
_FUNCTION = re.compile(r"^ *(?:async )?def (\w+)\(", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def _rows() -> dict[str, list[tuple[str, str]]]:
    """Return the tests that each row names: number of the row -> (file, name of the test)."""
    lines = _TABLE.read_text(encoding="utf-8").splitlines()
    return {match[1]: _TEST.findall(line) for line in lines if (match := _ROW.match(line))}


def _functions_of(file: str) -> set[str]:
    text = (ROOT / file).read_text(encoding="utf-8") if (ROOT / file).exists() else ""
    return set(_FUNCTION.findall(text))


def test_table_has_every_row_in_order() -> None:
    assert list(_rows()) == [*(f"S{number}" for number in range(1, 18)), *(f"F{number}" for number in range(1, 24))]


def test_every_row_names_tests_that_exist() -> None:
    missing_tests = {
        f"{row}: {file}::{name}"
        for row, tests in _rows().items()
        for file, name in tests or [("no test", "")]
        if name not in _functions_of(file)
    }
    assert missing_tests == set()


def test_every_guard_is_in_the_table() -> None:
    tests_in_table = {test for tests in _rows().values() for test in tests}
    files = [relative_path(path) for path in python_files("tests/workflow") if path.name.startswith("test_guards_")]
    guards = {(file, name) for file in files for name in _functions_of(file) if name.startswith("test_")}
    assert len(files) >= 5
    assert guards - tests_in_table == set()
