"""Fingerprint of the code of a tool: it changes if results may change, and is the same in every process."""

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

HELPER = "FACTOR = {factor}\n\ndef twice(value):\n    return value * FACTOR\n"
TOOLS = """
import json
from {package}_helper import twice

def double(value):
    return twice(value)

def other(value):
    return json.dumps(value)
"""


def fingerprint(function: Callable[..., Any] | None) -> str | None:
    return CodeFingerprinter().fingerprint(function)


def write(folder: Path, package: str, *, factor: int = 2, more: str = "") -> None:
    (folder / f"{package}_helper.py").write_text(HELPER.format(factor=factor), encoding="utf-8")
    (folder / f"{package}_tools.py").write_text(TOOLS.format(package=package) + more, encoding="utf-8")


def load_module(folder: Path, package: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(folder)
    for name in (f"{package}_helper", f"{package}_tools"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    module = importlib.import_module(f"{package}_tools")
    for name in (f"{package}_helper", f"{package}_tools"):
        monkeypatch.setitem(sys.modules, name, sys.modules[name])
    return module


@pytest.mark.waits
def test_code_is_the_same_in_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "same")
    here = fingerprint(load_module(tmp_path, "same", monkeypatch).double)
    program = (
        "import same_tools; from dagwright.tools.code_fingerprint import CodeFingerprinter as R; "
        "print(R().fingerprint(same_tools.double))"
    )
    environment = {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[3]}", "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", program]
    actual = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert actual.stdout.strip() == here


def test_code_differs_if_a_helper_in_another_file_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = []
    for number, (factor, more) in enumerate([(2, ""), (3, ""), (2, "NEW = 1\n"), (2, "")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, "helped", factor=factor, more=more)
        codes.append(fingerprint(load_module(folder, "helped", monkeypatch).double))
    assert codes[0] == codes[3]
    assert len(set(codes)) == 3
    assert None not in codes


def test_two_functions_of_one_file_have_two_codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "pair")
    module = load_module(tmp_path, "pair", monkeypatch)
    assert fingerprint(module.double) != fingerprint(module.other)


@dataclass
class Held:
    place: Path
    token: str = field(default="", repr=False)


def holding(value: Any) -> Callable[[], Any]:
    def tool() -> Any:
        return value

    return tool


def helper() -> int:
    return 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, 2),
        ("1", 1),
        (Path("a"), Path("b")),
        ([1, (2,)], [1, (3,)]),
        ({"a": {1, 2}}, {"a": {1, 3}}),
        (timedelta(1), timedelta(2)),
        (Held(Path("a")), Held(Path("b"))),
        (holding(1), holding(2)),
        (helper, fingerprint),
        (Held, FunctionType),
        (sys, textwrap),
    ],
)
def test_code_differs_if_plain_values_of_the_closure_differ(first: Any, second: Any) -> None:
    codes = [fingerprint(holding(value)) for value in (first, second, first)]
    assert codes[0] == codes[2]
    assert len(set(codes)) == 2
    assert None not in codes


def test_function_with_indistinguishable_values_has_no_code() -> None:
    scope: dict[str, Any] = {"__name__": "nowhere"}
    exec("def made(): return 1", scope)
    assert [
        fingerprint(function) for function in (holding(object()), holding([object()]), scope["made"], len, None)
    ] == [None] * 5


@pytest.mark.parametrize(
    ("imported", "used"),
    [
        ("from {package}_helper import FACTOR", "FACTOR"),
        ("import {package}_space.inner", "{package}_space.inner.FACTOR"),
        ("from {package}_space import inner", "inner.FACTOR"),
        ("def factor():\n    from {package}_helper import FACTOR\n    return FACTOR\n", "factor()"),
    ],
    ids=["constant", "package without a file", "module of such a package", "inside of a function"],
)
def test_code_differs_with_imports(imported: str, used: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    actual = []
    for number, factor in enumerate((2, 3, 2)):
        folder, package = tmp_path / str(number), "anything"
        (folder / f"{package}_space").mkdir(parents=True)
        for helper in (f"{package}_helper.py", f"{package}_space/inner.py"):
            (folder / helper).write_text(f"FACTOR = {factor}\n", encoding="utf-8")
        text = f"{imported}\n\ndef double(value):\n    return value * {used}\n".format(package=package)
        (folder / f"{package}_tools.py").write_text(text, encoding="utf-8")
        monkeypatch.syspath_prepend(folder)
        for name in [name for name in sys.modules if name.startswith(package)]:
            monkeypatch.delitem(sys.modules, name)
        importlib.invalidate_caches()
        module = importlib.import_module(f"{package}_tools")
        assert module.double(1) == factor
        actual.append(fingerprint(module.double))
    assert actual[0] is not None
    assert actual[0] == actual[2] != actual[1]


def test_tool_that_imports_an_unloaded_module_has_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "later_helper.py").write_text("FACTOR = 2\n", encoding="utf-8")
    text = "def double(value):\n    from later_helper import FACTOR\n    return value * FACTOR\n"
    (tmp_path / "later_tools.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    assert fingerprint(importlib.import_module("later_tools").double) is None
