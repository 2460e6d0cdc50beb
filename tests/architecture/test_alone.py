"""Tests that measure time run alone, after the tests that share the machine."""

import ast
from collections.abc import Iterator

from tests.architecture.source_files import files_with, python_files, relative_path, syntax_tree

_ALONE_MARKER = "pytest.mark.alone"


def _tests_that_measure_time(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            conditions = [ast.unparse(each.test) for each in ast.walk(node) if isinstance(each, ast.Assert)]
            if any("time.process_time()" in text for text in conditions):
                yield node


def test_tests_that_measure_time_run_alone() -> None:
    unmarked_tests, checked_count = [], 0
    for path in files_with(r"process_time\(\)|mark\.alone", python_files("tests")):
        if not path.name.startswith("test_"):
            continue
        assigned_values = [ast.unparse(node.value) for node in syntax_tree(path).body if isinstance(node, ast.Assign)]
        if any(_ALONE_MARKER in value for value in assigned_values):
            checked_count += 1
            continue
        for test in _tests_that_measure_time(syntax_tree(path)):
            checked_count += 1
            if _ALONE_MARKER not in map(ast.unparse, test.decorator_list):
                unmarked_tests.append(f"{relative_path(path)}::{test.name}")
    assert checked_count > 5
    assert unmarked_tests == []
