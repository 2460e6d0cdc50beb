"""Examples and documentation import public modules of Dagwright only."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import dagwright
from tests.architecture.source_files import imported_modules, python_files, relative_path
from tests.support.docs import Block, blocks_of, documentation_pages

_PUBLIC_MODULES = ("errors", "events", "types", "settings", "testing", "tools", "plugins", "llm")
"""Packages below `dagwright` that programs and applications may import, with their modules."""


def _internal_imports(path: Path) -> Iterator[str]:
    for name in imported_modules(path):
        package, *rest = name.split(".")
        if package == "dagwright" and rest and rest[0] not in (*_PUBLIC_MODULES, *dagwright.__all__):
            yield name


def test_examples_import_public_modules_only() -> None:
    files = [*python_files("examples")]
    assert len(files) > 10
    assert {relative_path(path): imports for path in files if (imports := [*_internal_imports(path)])} == {}


def _python_blocks() -> Iterator[Block]:
    for page in documentation_pages():
        yield from (block for block in blocks_of(page) if block.language == "python")


def test_documentation_imports_public_modules_only(tmp_path: Path) -> None:
    violations = {}
    for number, block in enumerate(_python_blocks()):
        (path := tmp_path / f"{number}.py").write_text(block.text, encoding="utf-8")
        if imports := [*_internal_imports(path)]:
            violations[str(block)] = imports
    assert violations == {}


@pytest.mark.parametrize(
    "text", ["from dagwright.client.run import Run", "import dagwright.client", "from dagwright import client"]
)
def test_internal_import_is_detected(text: str, tmp_path: Path) -> None:
    (path := tmp_path / "example.py").write_text(text, encoding="utf-8")
    assert [*_internal_imports(path)] != []
