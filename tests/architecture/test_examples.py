"""Examples and documentation import public modules of Dagwright only."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import dagwright
from tests.architecture.source_files import imported_modules, place, python_files
from tests.support.docs import Block, blocks, pages

_PUBLIC = ("errors", "events", "types", "settings", "testing", "tools", "plugins", "llm")
"""Packages below `dagwright` that programs and applications may import, with their modules."""


def _internal(path: Path) -> Iterator[str]:
    for name in imported_modules(path):
        package, *rest = name.split(".")
        if package == "dagwright" and rest and rest[0] not in (*_PUBLIC, *dagwright.__all__):
            yield name


def test_examples_import_public_modules_only() -> None:
    files = [*python_files("examples")]
    assert len(files) > 10
    assert {place(path): bad for path in files if (bad := [*_internal(path)])} == {}


def _python_blocks() -> Iterator[Block]:
    for page in pages():
        yield from (block for block in blocks(page) if block.language == "python")


def test_documentation_imports_public_modules_only(tmp_path: Path) -> None:
    wrong = {}
    for number, block in enumerate(_python_blocks()):
        (path := tmp_path / f"{number}.py").write_text(block.text, encoding="utf-8")
        if bad := [*_internal(path)]:
            wrong[str(block)] = bad
    assert wrong == {}


@pytest.mark.parametrize(
    "text", ["from dagwright.client.run import Run", "import dagwright.client", "from dagwright import client"]
)
def test_an_internal_import_is_seen(text: str, tmp_path: Path) -> None:
    (path := tmp_path / "example.py").write_text(text, encoding="utf-8")
    assert [*_internal(path)] != []
