"""Code fingerprint of a tool. It changes with the code and the values that the code uses, but not with the process."""

import importlib
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from dagwright.tools.code_fingerprint import CodeFingerprinter

HELPER_SOURCE = "FACTOR = {factor}\n\ndef twice(value):\n    return value * FACTOR\n"
TOOLS_SOURCE = """
import json
from {prefix}_helper import twice

def double(value):
    return twice(value)

def encode(value):
    return json.dumps(value)
"""


def fingerprint(function: Callable[..., Any] | None) -> str | None:
    return CodeFingerprinter().fingerprint(function)


def write_modules(folder: Path, prefix: str, *, factor: int = 2, appended_text: str = "") -> None:
    (folder / f"{prefix}_helper.py").write_text(HELPER_SOURCE.format(factor=factor), encoding="utf-8")
    (folder / f"{prefix}_tools.py").write_text(TOOLS_SOURCE.format(prefix=prefix) + appended_text, encoding="utf-8")


def load_module(folder: Path, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(folder)
    for name in (f"{prefix}_helper", f"{prefix}_tools"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    module = importlib.import_module(f"{prefix}_tools")
    for name in (f"{prefix}_helper", f"{prefix}_tools"):
        monkeypatch.setitem(sys.modules, name, sys.modules[name])
    return module


@pytest.mark.waits
def test_fingerprint_is_the_same_in_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_modules(tmp_path, "same")
    expected = fingerprint(load_module(tmp_path, "same", monkeypatch).double)
    program = (
        "import same_tools; from dagwright.tools.code_fingerprint import CodeFingerprinter; "
        "print(CodeFingerprinter().fingerprint(same_tools.double))"
    )
    environment = {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[3]}", "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", program]
    process = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert process.stdout.strip() == expected


def test_fingerprint_differs_if_a_helper_in_another_file_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fingerprints = []
    for number, (factor, appended_text) in enumerate([(2, ""), (3, ""), (2, "NEW = 1\n"), (2, "")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_modules(folder, "helped", factor=factor, appended_text=appended_text)
        fingerprints.append(fingerprint(load_module(folder, "helped", monkeypatch).double))
    assert fingerprints[0] == fingerprints[3]
    assert len(set(fingerprints)) == 3
    assert None not in fingerprints


def test_two_functions_of_one_file_have_different_fingerprints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_modules(tmp_path, "pair")
    module = load_module(tmp_path, "pair", monkeypatch)
    assert fingerprint(module.double) != fingerprint(module.encode)


@dataclass
class Location:
    path: Path
    token: str = field(default="", repr=False)


def closure_over(value: Any) -> Callable[[], Any]:
    def tool() -> Any:
        return value

    return tool


def helper() -> int:
    return 1


@pytest.mark.parametrize(
    ("first_value", "second_value"),
    [
        (1, 2),
        ("1", 1),
        (Path("a"), Path("b")),
        ([1, (2,)], [1, (3,)]),
        ({"a": {1, 2}}, {"a": {1, 3}}),
        (timedelta(1), timedelta(2)),
        (Location(Path("a")), Location(Path("b"))),
        (closure_over(1), closure_over(2)),
        (helper, fingerprint),
        (Location, FunctionType),
        (sys, textwrap),
    ],
)
def test_fingerprint_differs_if_values_of_the_closure_differ(first_value: Any, second_value: Any) -> None:
    fingerprints = [fingerprint(closure_over(value)) for value in (first_value, second_value, first_value)]
    assert fingerprints[0] == fingerprints[2]
    assert len(set(fingerprints)) == 2
    assert None not in fingerprints


def test_function_without_source_or_with_values_of_unknown_types_has_no_fingerprint() -> None:
    scope: dict[str, Any] = {"__name__": "nowhere"}
    exec("def without_source(): return 1", scope)
    functions = (closure_over(object()), closure_over([object()]), scope["without_source"], len, None)
    assert [fingerprint(function) for function in functions] == [None] * 5


@pytest.mark.parametrize(
    ("import_text", "expression"),
    [
        ("from {prefix}_helper import FACTOR", "FACTOR"),
        ("import {prefix}_space.inner", "{prefix}_space.inner.FACTOR"),
        ("from {prefix}_space import inner", "inner.FACTOR"),
        ("def factor():\n    from {prefix}_helper import FACTOR\n    return FACTOR\n", "factor()"),
    ],
    ids=["constant", "namespace package", "module of a namespace package", "inside of a function"],
)
def test_fingerprint_differs_if_an_imported_value_differs(
    import_text: str, expression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fingerprints = []
    for number, factor in enumerate((2, 3, 2)):
        folder, prefix = tmp_path / str(number), "anything"
        (folder / f"{prefix}_space").mkdir(parents=True)
        for module_path in (f"{prefix}_helper.py", f"{prefix}_space/inner.py"):
            (folder / module_path).write_text(f"FACTOR = {factor}\n", encoding="utf-8")
        text = f"{import_text}\n\ndef double(value):\n    return value * {expression}\n".format(prefix=prefix)
        (folder / f"{prefix}_tools.py").write_text(text, encoding="utf-8")
        monkeypatch.syspath_prepend(folder)
        for name in [name for name in sys.modules if name.startswith(prefix)]:
            monkeypatch.delitem(sys.modules, name)
        importlib.invalidate_caches()
        module = importlib.import_module(f"{prefix}_tools")
        assert module.double(1) == factor
        fingerprints.append(fingerprint(module.double))
    assert fingerprints[0] is not None
    assert fingerprints[0] == fingerprints[2] != fingerprints[1]


def test_tool_that_imports_an_unloaded_module_has_no_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "later_helper.py").write_text("FACTOR = 2\n", encoding="utf-8")
    text = "def double(value):\n    from later_helper import FACTOR\n    return value * FACTOR\n"
    (tmp_path / "later_tools.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    assert fingerprint(importlib.import_module("later_tools").double) is None
