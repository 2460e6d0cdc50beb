"""Types of the public API: programs that type checkers accept, and mistakes that they report.

A file `*_ok.py` has no error. In a file `*_errors.py` each line with `# E: TEXT` has an error with that text, and no
other line has one.
"""

import re
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(Path(__file__).parent.glob("*_*.py"))
PROGRAMS = [path for path in FILES if path.stem.endswith(("_ok", "_errors"))]

_EXPECTED = re.compile(r"# E: (.+)$")
_ERROR = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: (?P<text>.*)$")


@pytest.fixture(scope="module")
def reported() -> dict[str, list[tuple[int, str]]]:
    """Errors of all programs, checked at once: file name -> line and text of each error."""
    files = [str(path.relative_to(ROOT)) for path in PROGRAMS]
    output, crash, _ = api.run(["--config-file", str(ROOT / "pyproject.toml"), "--strict", "--no-pretty", *files])
    assert not crash
    found: dict[str, list[tuple[int, str]]] = {}
    for error in filter(None, map(_ERROR.match, output.splitlines())):
        found.setdefault(Path(error["file"]).name, []).append((int(error["line"]), error["text"]))
    return found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_type_checkers_report_the_expected_errors(program: Path, reported: dict[str, list[tuple[int, str]]]) -> None:
    lines = enumerate(program.read_text("utf-8").splitlines(), 1)
    expected = {number: found[1] for number, line in lines if (found := _EXPECTED.search(line))}
    errors = reported.get(program.name, [])
    assert bool(expected) == program.stem.endswith("_errors")
    assert sorted({number for number, _ in errors}) == sorted(expected), errors
    assert [text for number, text in errors if expected[number] not in text] == []
