"""Functions whose name is only a participle are reported."""

import ast

import pytest

from scripts.check_names import functions_named_by_participle


@pytest.mark.parametrize("name", ["parsed", "_parsed", "found", "_sent", "exited_"])
def test_function_named_by_a_participle_is_reported(name: str) -> None:
    tree = ast.parse(f"import re\n\nasync def {name}() -> None: ...")
    assert [*functions_named_by_participle(tree)] == [(3, name)]


@pytest.mark.parametrize("name", ["parse_rows", "is_parsed", "on_node_ended", "_feed", "read", "wait_until_ended"])
def test_verb_phrase_question_and_callback_are_not_reported(name: str) -> None:
    assert [*functions_named_by_participle(ast.parse(f"def {name}() -> None: ..."))] == []


def test_methods_and_inner_functions_are_reported_but_not_properties() -> None:
    code = """
class Call:
    def ended(self) -> None:
        def counted() -> None: ...

    @property
    def cancelled(self) -> bool: ...

    @cached_property
    def encoded(self) -> bytes: ...
"""
    assert [*functions_named_by_participle(ast.parse(code))] == [(3, "ended"), (4, "counted")]
