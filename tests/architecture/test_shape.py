"""The shape of the code: import rules, reads of the environment, and the length of files."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source_files import (
    ROOT,
    code_files,
    files_with,
    imported_modules,
    python_files,
    relative_path,
    syntax_nodes,
    text_files,
)

_MAX_FILE_LINES = 600

_PURE_LIBRARIES = {"pydantic", "pydantic_core", "annotated_types", "cel", "jsonpath", "jsonschema_rs", "dagwright"}
_PURE_PACKAGES = ("core", "features", "planning")
_IMPURE_MODULES = {
    "asyncio",
    "logging",
    "os",
    "pathlib",
    "random",
    "secrets",
    "socket",
    "subprocess",
    "threading",
    "time",
}
_DOCSTRING_FIRST = re.compile(r'(#.*\n|\s)*r?"""\S')
_MACHINE_PATHS = tuple("/" + name + "/" for name in ("root", "work", "home", "opt"))
_EXAMPLE_HOME = "/".join(["", "home", "ann"])
"""Home folder in the sample output on documentation pages."""
_TEST_KINDS = {
    "architecture",
    "chaos",
    "conformance",
    "e2e",
    "fuzz",
    "packaging",
    "property",
    "replay",
    "support",
    "typing",
    "unit",
    "workflow",
}


def _imported_packages(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported_modules(path)}


def test_pure_packages_import_only_pure_libraries() -> None:
    violations = {
        relative_path(path): sorted(imports)
        for package in _PURE_PACKAGES
        for path in python_files(f"dagwright/{package}")
        if (imports := _imported_packages(path) - _PURE_LIBRARIES - (sys.stdlib_module_names - _IMPURE_MODULES))
    }
    assert violations == {}


def test_workflows_import_only_pure_packages_and_temporal() -> None:
    pure_packages = tuple(f"dagwright.{package}" for package in (*_PURE_PACKAGES, "protocol"))
    allowed_packages = (*pure_packages, "dagwright.workflows", "temporalio", "pydantic")
    violations = {
        relative_path(path): imports
        for path in python_files("workflows")
        if (
            imports := sorted(
                name
                for name in imported_modules(path)
                if not name.startswith(allowed_packages)
                and name != "dagwright"
                and name.split(".")[0] not in sys.stdlib_module_names - _IMPURE_MODULES | {"asyncio", "logging"}
            )
        )
    }
    assert violations == {}


def test_only_the_server_package_connects_to_temporal() -> None:
    connectors = {
        relative_path(path)
        for path in files_with(r"\.connect\b", code_files())
        # In files with this import, `Client` is the client of Dagwright.
        if "from dagwright.client.client import Client" not in path.read_text("utf-8")
        for node in syntax_nodes(path)
        if isinstance(node, ast.Attribute) and node.attr == "connect" and ast.unparse(node.value) == "Client"
    }
    assert connectors == {"dagwright/server/connection.py", "dagwright/server/local.py"}


def _lines_that_read_the_environment(path: Path) -> Iterator[int]:
    attributes = {"environ", "getenv", "environb"}
    for node in syntax_nodes(path):
        if isinstance(node, ast.Attribute) and node.attr in attributes:
            yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            names = {alias.name for alias in node.names}
            if names & attributes:
                yield node.lineno


def test_only_the_settings_read_the_environment() -> None:
    readers = {
        relative_path(path)
        for path in files_with("environ|getenv", code_files())
        if any(_lines_that_read_the_environment(path))
    }
    assert readers <= {"dagwright/settings.py"}


def test_only_programs_load_the_settings() -> None:
    import_pattern = re.compile(r"import .*\bload_settings\b")
    loaders = {relative_path(path) for path in code_files() if import_pattern.search(path.read_text("utf-8"))}
    programs = {
        path for path in loaders if path.startswith("dagwright/interfaces/cli/") or path.endswith("/__main__.py")
    }
    # Built-in tools get settings from a `ToolEnvironment`. Python programs get them from a client or `dagwright.run`.
    assert loaders == programs | {"dagwright/client/client.py", "dagwright/client/run_script.py"}


@pytest.mark.parametrize("text", ["import os\nos.getenv('X')", "from os import environ", "import os as o\no.environ"])
def test_reading_the_environment_is_detected(text: str, tmp_path: Path) -> None:
    path = tmp_path / "reader.py"
    path.write_text(text, encoding="utf-8")
    assert any(_lines_that_read_the_environment(path))


def test_no_file_is_too_long() -> None:
    folders = ("dagwright", "workflows", "activities", "tests", "examples", "benchmarks")
    lengths = {
        relative_path(path): count
        for path in [*python_files(*folders), *code_files()]
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > _MAX_FILE_LINES
    }
    assert lengths == {}


def _lines_with(needles: tuple[str, ...]) -> list[str]:
    matches = []
    for path in text_files():
        text = path.read_text(encoding="utf-8", errors="replace").replace(_EXAMPLE_HOME, "~")
        if not any(needle in text for needle in needles):
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if any(needle in line for needle in needles):
                matches.append(f"{relative_path(path)}:{number}: {line.strip()[:120]}")
    return matches


def test_no_file_has_an_option_for_a_package_registry() -> None:
    options = tuple("--" + name for name in ("index-url", "extra-index-url", "find-links", "trusted-host"))
    allowed = ("Makefile:",)
    assert [line for line in _lines_with(options) if not line.startswith(allowed)] == []


def test_no_file_holds_a_path_of_one_machine() -> None:
    prefixes = ('"', "'", "`", " ", "=", "(")
    needles = tuple(prefix + path for prefix in prefixes for path in _MACHINE_PATHS)
    assert _lines_with(needles) == []


def test_every_folder_of_tests_has_a_known_name() -> None:
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders <= _TEST_KINDS


def test_no_test_is_skipped() -> None:
    skips = []
    for path in files_with(r"\.(skip|skipif|importorskip|xfail)\b", python_files("tests")):
        for node in syntax_nodes(path):
            if isinstance(node, ast.Attribute) and node.attr in ("skip", "skipif", "importorskip", "xfail"):
                owner = ast.unparse(node.value)
                if owner in ("pytest", "pytest.mark"):
                    skips.append(f"{relative_path(path)}:{node.lineno}")
    assert skips == []


def test_every_module_starts_with_a_docstring() -> None:
    texts = ((path, path.read_text(encoding="utf-8").strip()) for path in code_files())
    assert [relative_path(path) for path, text in texts if text and not _DOCSTRING_FIRST.match(text)] == []
