"""Tests that measure time run alone, after the tests that share the machine."""

import ast
from collections.abc import Iterator

from tests.architecture.source_files import files_with, place, python_files, syntax_tree

_ALONE = "pytest.mark.alone"


def _measuring(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            asserted = [ast.unparse(each.test) for each in ast.walk(node) if isinstance(each, ast.Assert)]
            if any("time.process_time()" in text for text in asserted):
                yield node


def test_tests_that_measure_time_run_alone() -> None:
    together, actual = [], 0
    for path in files_with(r"process_time\(\)|mark\.alone", python_files("tests")):
        if not path.name.startswith("test_"):
            continue
        marks = [ast.unparse(node.value) for node in syntax_tree(path).body if isinstance(node, ast.Assign)]
        if any(_ALONE in mark for mark in marks):
            actual += 1
            continue
        for test in _measuring(syntax_tree(path)):
            actual += 1
            if _ALONE not in map(ast.unparse, test.decorator_list):
                together.append(f"{place(path)}::{test.name}")
    assert actual > 5
    assert together == []
