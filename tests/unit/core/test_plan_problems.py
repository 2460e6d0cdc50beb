"""Messages about mistakes in a plan: problem, location and hint. Hints are computed in bounded time."""

import ast
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import dagwright
from dagwright.client.forks import unknown_rerun_message
from dagwright.core.errors import MAX_PROBLEMS, TOO_MANY_PROBLEMS, PlanInvalid
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.name_hints import (
    DEFAULT_HINT_COST,
    HintBudget,
    find_nearest_names,
    suggestion,
)
from dagwright.core.validation.inputs import problems_of_inputs
from dagwright.plans.posted_plans import PostedPlan, check_response
from dagwright.plans.preparation import check_plan, unused_input_problems
from tests.support.plan_building import TOOLS, node, plan_of, problems_of


def _problems_in(*nodes: Any, **fields: Any) -> list[tuple[str, str | None, str, str | None]]:
    problems = problems_of(plan_of(*nodes, **fields))
    return [(problem.pointer, problem.node_id, problem.message, problem.hint) for problem in problems]


_ON_ERROR_VALUES = "block, skip, ask, replan or {value: …}"


@pytest.mark.parametrize(
    ("fields", "location", "message", "hint"),
    [
        ({"human": {"type": "APPROVL"}, "tool": None}, "/human/type", "human.type: expected", "'APPROVAL'"),
        ({"join": "al"}, "/join", "join: expected all, any, all_done or {at_least: k}, not 'al'", "'all'"),
        ({"on_error": "skp"}, "/on_error", f"on_error: expected {_ON_ERROR_VALUES}, not 'skp'", "'skip'"),
        ({"depends_on": "x"}, "/depends_on", "depends_on: expected a list of node ids, not 'x'", "write [x]"),
        ({"timeout": 30}, "/timeout", "timeout: expected a duration such as 30s, not 30", "write 30s for seconds"),
        ({"retry": 3}, "/retry", "retry: expected an object, not 3", "write {max_attempts: 3}"),
    ],
)
def test_invalid_field_value_is_reported_with_a_hint(
    fields: dict[str, Any], location: str, message: str, hint: str
) -> None:
    [(pointer, node_id, actual_message, actual_hint)] = _problems_in(node("a", **fields))
    assert (pointer, node_id) == (f"/nodes/0{location}", "a")
    assert actual_hint == (f"did you mean {hint}?" if hint.startswith("'") else hint)
    assert actual_message.startswith(message)


@pytest.mark.parametrize(
    ("fields", "name", "allowed_names"),
    [
        ({"retry": {"max_atempts": 2}}, "retry.max_atempts", "max_attempts, first_delay, factor, max_delay"),
        ({"human": {"promt": "?"}, "tool": None}, "human.promt", "prompt, "),
        ({"approval": {"promt": "?"}}, "approval.promt", "prompt, "),
        ({"argument": {"x": 1}}, "argument", "arguments, "),
    ],
)
def test_unknown_field_is_the_only_problem_and_has_a_hint(
    fields: dict[str, Any], name: str, allowed_names: str
) -> None:
    [(pointer, node_id, actual_message, hint)] = _problems_in(node("a", **fields))
    nearest_name = allowed_names.partition(",")[0]
    assert (pointer, node_id) == (f"/nodes/0/{name.replace('.', '/')}", "a")
    assert actual_message.startswith(f"unknown field {name!r}; allowed are {allowed_names}")
    assert hint == f"did you mean {nearest_name!r}?"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"id": "a", "tol": "any"}, ["/nodes/0/tol"]),
        ({"id": "a", "tool": "typed", "argument": {"name": "xx"}}, ["/nodes/0/argument"]),
        ({"id": "a", "tool": "typed", "arguments": [1]}, ["/nodes/0/arguments"]),
        ({"id": "a", "tool": "typed", "arguments": {"nam": "xx"}}, ["/nodes/0/arguments/nam"]),
        # Without a valid `for_each`, the reference to the item is a problem too.
        ({"id": "a", "tool": "any", "foreach": [1], "key": "{{item}}"}, ["/nodes/0/foreach", "/nodes/0/key"]),
        ({"id": "a", "tool": "any", "join": {"at_least": 1}, "depends_on": "b"}, ["/nodes/0/depends_on"]),
        ("a", ["/nodes/0"]),
    ],
)
def test_wrong_field_causes_no_problems_in_unrelated_fields(raw: Any, expected: list[str]) -> None:
    assert [each[0] for each in _problems_in(raw)] == expected


def test_mistakes_in_version_id_tool_and_field_are_explained() -> None:
    message = "plan: this program reads plans of version 1, not 2"
    assert _problems_in(node("a"), plan=2) == [
        ("/plan", None, message, "write plan: 1; a later version needs a newer Dagwright")
    ]
    [(pointer, node_id, message, _)] = _problems_in(node("item"), node("b", arguments={"x": "{{item.result}}"}))
    assert (pointer, node_id) == ("/nodes/0/id", "item")
    assert message == (
        "id: 'item' is reserved for the item of a for_each; an id is any text but index, inputs, item, secret, ~budget"
    )
    tools = {"fresh": ToolDeclaration("fresh", aliases=("stale",))}
    problems = problems_of(plan_of(node("a", tool="stale")), tools=tools)
    assert [problem.hint for problem in problems] == ["the tool was renamed: write tool: fresh"]
    [(_, _, message, hint)] = _problems_in(node("a", zzzzzz=1))
    field_list = "id, title, tool, agent, human, plan, arguments, objective and 15 more"
    assert (message, hint) == (f"unknown field 'zzzzzz'; allowed are {field_list}", None)


_JSON_TYPES = {"int": "integer", "str": "string", "bool": "boolean", "list": "array", "dict": "object"}


@pytest.mark.parametrize(("name", "expected_type"), [*_JSON_TYPES.items(), ("float", "number"), ("strng", "string")])
def test_unknown_type_is_reported_with_the_nearest_json_type(name: str, expected_type: str) -> None:
    array_schema, hint = {"type": "array", "items": {"type": name}}, f"did you mean {expected_type!r}?"
    assert _problems_in(node("a"), inputs={"x": {"type": name}, "y": array_schema}) == [
        (f"/inputs/{location}", None, f"inputs.{location.replace('/', '.')}: {name!r} is not a JSON type", hint)
        for location in ("x/type", "y/items/type")
    ]


_UNKNOWN_STEPS = "unknown field 'steps'; allowed are title, plan, metadata, inputs, on_failure, deadline, nodes, output"


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ({"plan": 1, "nodes": {"a": {}}}, [("/nodes", "'nodes' must be a list, not an object")]),
        ({"plan": 1, "steps": []}, [("/steps", _UNKNOWN_STEPS), ("", "'nodes' is missing")]),
    ],
)
def test_plan_without_a_list_of_nodes_has_a_hint(plan: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    problems = problems_of(plan)
    assert [(problem.pointer, problem.message) for problem in problems] == expected
    assert problems[-1].hint == "write a list of nodes, such as nodes: [{id: a, tool: NAME}]"
    assert [problem.code for problem in problems_of({"nodes": []})] == ["empty_plan"]


def _problems_of_b(**fields: object) -> list[tuple[str, str, str | None, str, str | None]]:
    actual = problems_of(plan_of(node("a"), node("b", **fields)))
    return [(each.code, each.pointer, each.node_id, each.message, each.hint) for each in actual]


@pytest.mark.parametrize(
    ("when", "message", "hint"),
    [
        ("a.reslt > 1", "'a' has no field 'reslt'; a node has result, status, error", "did you mean 'result'?"),
        ("a.value > 1", "'a' has no field 'value'; a node has result, status, error", "write a.result.value"),
        ("a > 1", "'a' is a node and not a value", "write a.result"),
        (
            'nodes["a"].eror == null',
            "'a' has no field 'eror'; a node has result, status, error",
            "did you mean 'error'?",
        ),
        ("aa.result > 1", "there is no node 'aa'", "did you mean 'a'?"),
        ("a.result b", "column 10: 'b' is not expected here", None),
        ("a.result > ", "column 12: the condition ends too early, after 'a.result >'", None),
        ("a.result = 1", "column 10: '=' is not expected here", "write == to compare"),
        ("a.result === 1", "column 12: '=' is not expected here", "write == to compare"),
        ("a.result == 1 and true", "column 15: 'and' is not expected here", "write && for 'and'"),
        ("a.result == 1 or true", "column 15: 'or' is not expected here", "write || for 'or'"),
        ("not a.result", "column 5: 'a' is not expected here", "write ! for 'not'"),
        ("a.result <> 1", "column 11: '>' is not expected here", "write != for 'not equal'"),
        ("(a.result == 1", "column 15: ')' is missing", None),
        ("a.result == 'x", "column 13: the text after ' has no closing '", None),
        ("{{a.result}} > 1", "column 1: a condition must not contain {{ }}", "write the reference without braces"),
        ("", "the condition is empty", "write a comparison such as a.result > 1"),
        ("a.result == “x”", "column 13: '“' is not expected here", "write straight quotes: ' or \""),
        ("a.result == 1 &&\n  true b", "line 2, column 8: 'b' is not expected here", None),
        ("has(a)", "column 5: invalid argument to has() macro", None),
    ],
)
def test_wrong_condition_is_reported_in_plain_words(when: str, message: str, hint: str | None) -> None:
    [(code, pointer, node_id, actual_message, actual_hint)] = _problems_of_b(when=when)
    assert (code, pointer, node_id) == ("invalid_field", "/nodes/1/when", "b")
    assert actual_message.startswith(f"when: {message}")
    assert (actual_hint is None) if hint is None else (actual_hint or "").startswith(hint)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("{{a.reslt}}", "'a' has no field 'reslt'; a node has result, status, error", "did you mean 'result'?"),
        ("{{a.results.x}}", "'a' has no field 'results'; a node has result, status, error", "did you mean 'result'?"),
        ("{{a.rslt.result}}", "'a' has no field 'rslt'; a node has result, status, error", "did you mean 'result'?"),
        ("{{a.amount}}", "'a' has no field 'amount'; a node has", "write a.result.amount for a part of its result"),
        ("{{ a }}", "'a' is a node and not a value", "write {{a.result}}"),
        ("{{PLACEHOLER_x}}", "not a reference", "did you mean {{PLACEHOLDER_x}}?"),
        ("{{placeholder_x}}", "not a reference", "did you mean {{PLACEHOLDER_x}}?"),
        ("{{secrets.KEY}}", "not a reference", "did you mean {{secret.KEY}}?"),
    ],
)
def test_wrong_reference_has_a_hint(text: str, message: str, hint: str) -> None:
    [(code, pointer, node_id, actual_message, actual_hint)] = _problems_of_b(arguments={"x": text})
    assert (code, pointer, node_id) == ("invalid_reference", "/nodes/1/arguments/x", "b")
    assert actual_message.startswith(f"Invalid reference: {text}: {message}")
    assert actual_hint == hint


def test_similar_item_reference_is_suggested() -> None:
    for text, hint in (("{{itm}}", "did you mean {{item}}?"), ("{{ indx }}", "did you mean {{index}}?")):
        [(_, _, _, _, actual_hint)] = _problems_of_b(for_each=[1], arguments={"x": text})
        assert (actual_hint or "").startswith(hint)


def test_unknown_node_of_a_reference_is_reported_before_its_unknown_field() -> None:
    [(_, _, _, message, _)] = _problems_of_b(arguments={"x": "{{zz.reslt}}"})
    assert message == "Invalid reference: {{zz.reslt}}: there is no node 'zz'"


MAX_SECONDS = 2.0
"""Hints take at most half a second. A busy machine may need several times as long."""


def _codes_and_hints(
    raw: Mapping[str, Any], tools: Mapping[str, ToolDeclaration] = TOOLS
) -> list[tuple[str, str | None]]:
    with pytest.raises(PlanInvalid) as caught:
        check_plan(raw, tools)
    return [(problem.code, problem.hint) for problem in caught.value.problems]


def _nodes_with_similar_ids(count: int, length: int) -> list[dict[str, Any]]:
    ids = [f"{number:03}" + "a" * length for number in range(count)]
    return [node(node_id, node_id[::-1]) for node_id in ids]


@pytest.mark.parametrize("length", [50, 90])
def test_long_similar_names_are_compared_in_bounded_time(length: int) -> None:
    start = time.thread_time()
    problems = _codes_and_hints(plan_of(*_nodes_with_similar_ids(100, length)))
    assert len(problems) == 100
    assert time.thread_time() - start < MAX_SECONDS


def test_unknown_arguments_are_compared_in_bounded_time() -> None:
    names = [f"{number:04}" + "ab" * 20 for number in range(2_000)]
    schema = {"type": "object", "properties": {name: {} for name in names[:1_000]}, "additionalProperties": False}
    tools = {"wide": ToolDeclaration("wide", TOOLS["typed"].effects, schema)}
    start = time.thread_time()
    problems = _codes_and_hints(plan_of(node("a", tool="wide", arguments=dict.fromkeys(names[1_000:], 1))), tools)
    assert len(problems) == MAX_PROBLEMS + 1
    assert time.thread_time() - start < MAX_SECONDS


def test_suggestions_skip_very_long_names_in_bounded_time() -> None:
    start = time.thread_time()
    assert [suggestion("a" * 5_000_000, ["a" * 40] * 100) for _ in range(100)] == [None] * 100
    assert suggestion("calc", ["c" * 5_000_000, "calculate"]) == "did you mean 'calculate'?"
    assert time.thread_time() - start < MAX_SECONDS


def test_hints_are_the_nearest_names_within_a_budget() -> None:
    budget = HintBudget(100)
    suggestions = [budget.suggestion("bok", ["book"]) for _ in range(6)]
    assert suggestions == ["did you mean 'book'?"] * 5 + [None]
    nearest_names = find_nearest_names("serch", ["search", "searches", "perch", "zzz"], limit=3)
    assert nearest_names == ["search", "perch", "searches"]
    budget = HintBudget(DEFAULT_HINT_COST)
    names = [f"fetch_{word}" for word in ("books", "films", "songs", "plays", "games")]
    assert {budget.suggestion(f"{name}s", names) for name in names * 20} == {
        f"did you mean {name!r}?" for name in names
    }


def test_unused_inputs_are_reported_up_to_the_limit_of_problems() -> None:
    checked_plan = check_plan(plan_of(node("a"), inputs={f"in_{n}": {"default": "x"} for n in range(1_000)}), TOOLS)
    start = time.thread_time()
    problems = unused_input_problems(checked_plan, [f"out_{n}" for n in range(1_000)])
    assert PlanInvalid(problems).problems[-1].code == TOO_MANY_PROBLEMS
    assert len(problems) == MAX_PROBLEMS + 1
    assert time.thread_time() - start < MAX_SECONDS


def test_unknown_inputs_of_conditions_are_compared_in_bounded_time() -> None:
    inputs = {f"in_{n}": {"default": "x"} for n in range(1_000)}
    nodes = [node(f"n{n}", when=f"inputs.im_{n} == 'x'") for n in range(110)]
    start = time.thread_time()
    assert len(_codes_and_hints(plan_of(*nodes, inputs=inputs))) == MAX_PROBLEMS
    assert time.thread_time() - start < MAX_SECONDS


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"arguments": {"x": "\ud800"}}, "/nodes/0/arguments/x"),
        ({"human": {"type": "CLARIFICATION", "prompt": "\ud800"}}, "/nodes/0/human/prompt"),
        ({"arguments": {"\ud800": 1}}, "/nodes/0/arguments"),
    ],
)
def test_lone_surrogate_is_reported_with_a_pointer_and_a_line(fields: dict[str, Any], pointer: str) -> None:
    with pytest.raises(PlanInvalid) as caught:
        check_plan(plan_of(node("a", **fields)), TOOLS)
    assert [(problem.code, problem.pointer) for problem in caught.value.problems] == [("invalid_syntax", pointer)]
    actual = check_response(PostedPlan("nodes: \ud800"), TOOLS)
    assert ({*actual}, [error["line"] for error in actual["errors"]]) == ({"status", "errors"}, [1])


def test_messages_about_inputs_and_forks_are_short() -> None:
    [problem] = problems_of_inputs({"n": {"type": "number"}}, {"n": "x" * 500_000})
    assert problem.message == "the input 'n': \"" + "x" * 99 + '… is not of type "number"'
    plan = CompiledPlan(nodes=(CompiledNode("book", kind="tool", tool="any"),))
    assert unknown_rerun_message("bok", plan) == "rerun 'bok': the fork has no such node or item; did you mean 'book'?"
    assert unknown_rerun_message("zzz", plan) == "rerun 'zzz': the fork has no such node or item"


def test_unknown_keyword_of_an_input_schema_is_noted() -> None:
    message = "inputs.net.tpye: 'tpye' is not a keyword of JSON Schema and has no effect; did you mean 'type'?"
    assert _notes({"net": {"tpye": "number"}}) == [("unknown_keyword", "/inputs/net/tpye", message)]
    known_keywords = {"type": "number", "prompt": "Net", "default": 1, "minimum": 0, "unit": "EUR", "x-order": 3}
    assert _notes({"net": known_keywords}) == []


def _notes(inputs: Any) -> list[tuple[str, str, str]]:
    plan = {"plan": 1, "inputs": inputs, "nodes": [{"id": "a", "tool": "t"}]}
    checked_plan = check_plan(plan, {}, allow_unknown_tools=True)
    return [(note.code, note.pointer, note.message) for note in checked_plan.notes]


_CHECKED_FILE_PATTERNS = ("core/**/*.py", "features/**/*.py", "dialects/*.py", "plans/*.py")
_QUOTED_CODE = re.compile(r"`([^`]*)`")


def _texts(value: ast.expr | None) -> Iterator[str]:
    if isinstance(value, ast.IfExp):
        yield from (*_texts(value.body), *_texts(value.orelse))
    elif isinstance(value, ast.BoolOp):
        yield from (text for value in value.values for text in _texts(value))
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in value.values)


def _hints(tree: ast.AST) -> Iterator[str]:
    for each in ast.walk(tree):
        if (isinstance(each, ast.keyword) and each.arg == "hint") or (
            isinstance(each, ast.Assign) and [ast.unparse(target) for target in each.targets] == ["hint"]
        ):
            yield from _texts(each.value)
        elif isinstance(each, ast.Call) and ast.unparse(each.func) == "Problem":
            yield from (text for argument in each.args[4:5] for text in _texts(argument))


def _quotes_code_other_than_commands(hint: str) -> bool:
    return not all(code.startswith("dagwright ") for code in _QUOTED_CODE.findall(hint))


def test_hints_have_no_initial_capital_and_no_period_and_quote_only_commands() -> None:
    root = Path(dagwright.__file__).parent
    files = [file for pattern in _CHECKED_FILE_PATTERNS for file in root.glob(pattern)]
    texts = [file.read_text(encoding="utf-8") for file in files]
    texts_with_hints = [text for text in texts if re.search(r"hint *=|Problem\(", text)]
    hints = [hint for text in texts_with_hints for hint in _hints(ast.parse(text))]
    assert len(hints) > 30
    assert [
        hint for hint in hints if hint[:1].isupper() or hint.endswith(".") or _quotes_code_other_than_commands(hint)
    ] == []
