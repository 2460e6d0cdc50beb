"""Plans that models write: repairs are reported, and ambiguous text is rejected."""

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagwright.core.errors import PlanInvalid
from dagwright.core.model.tools import ToolDeclaration
from dagwright.dialects.written_plan import read_written_plan
from dagwright.dialects.written_text import read_written_json
from dagwright.dialects.written_values import MAX_REPAIRS_PER_CODE, limit_repairs, summarize_repairs
from tests.support.example_counts import example_count

NODE = '{"id": "a", "tool": "t"}'
TOOLS = {name: ToolDeclaration(name) for name in ("read_file", "read_files", "search", "send_mail", "calculator")}


def value_and_codes(text: str) -> tuple[Any, list[str]]:
    parsed = read_written_json(text)
    return parsed.value, [repair.code for repair in parsed.repairs]


def problems_of(text: str, **options: Any) -> list[tuple[str, str]]:
    with pytest.raises(PlanInvalid) as caught:
        read_written_plan(text, **options)
    return [(problem.code, problem.message) for problem in caught.value.problems]


def document_problems(text: str, **options: Any) -> list[tuple[str, str, str]]:
    """Return the problems of a text that was read without repairs."""
    document, repairs = read_written_plan(text, **options)
    assert not repairs
    return [(problem.code, problem.pointer, problem.message) for problem in document.problems]


def nodes_of(text: str, **options: Any) -> list[Any]:
    document, _ = read_written_plan(text, **options)
    assert not document.problems
    nodes: list[Any] = document.plan["nodes"]
    return nodes


def plan_text(*nodes: Any, **fields: Any) -> str:
    return json.dumps({"plan": 1, "nodes": list(nodes), **fields})


def node(node_id: Any, tool: str = "t", **arguments: Any) -> dict[str, Any]:
    return {"id": node_id, "tool": tool, "arguments": arguments}


@pytest.mark.parametrize(
    ("text", "value", "codes"),
    [
        ('{"a": 1}', {"a": 1}, []),
        ('\ufeff {"a": 1}\n', {"a": 1}, []),
        ('Sure:\n```json\n{"a": 1}\n```\nDone.', {"a": 1}, ["fenced", "prose", "prose"]),
        ('~~~\n[{"a": "x ``` y"}]\n~~~', [{"a": "x ``` y"}], ["fenced"]),
        ('As [1] says, use {name}: {"a": 1}', {"a": 1}, ["prose"]),
        ('<think>{"b": 2}</think>{"a": 1}', {"a": 1}, ["thinking"]),
        ('{"a": [1, 2,], "b": {"c": 3,},}', {"a": [1, 2], "b": {"c": 3}}, ["trailing_comma"] * 3),
        ('{"a": 1 // one\n, # two\n/* three */ "b": 2}', {"a": 1, "b": 2}, ["comment"] * 3),
        ("{'a': 'it\\'s \"b\"'}", {"a": 'it\'s "b"'}, ["single_quotes"] * 2),
        ("{“a”: “b”, ‘c’: 1}", {"a": "b", "c": 1}, ["typographic_quotes"] * 3),
        ('{"a": “it\'s”}', {"a": "it's"}, ["typographic_quotes"]),
        ('{"a": True, "b": False, "c": None}', {"a": True, "b": False, "c": None}, ["python_literal"] * 3),
        ('{"a": NaN}', {"a": None}, ["not_a_number"]),
        ('{"a": [+1, .5, 5.]}', {"a": [1, 0.5, 5.0]}, ["number"] * 3),
        ('{"a": "x\ny\tz"}', {"a": "x\ny\tz"}, ["control_character"]),
        ("{a: 1, b-c: {d: 2}}", {"a": 1, "b-c": {"d": 2}}, ["unquoted_key"] * 3),
        ('[{"a": 1} {"b": 2}]', [{"a": 1}, {"b": 2}], ["missing_comma"]),
        ('{"a": 1, "a": 1}', {"a": 1}, ["duplicate_key"]),
        ('{"a": 1}\nAgain:\n{"a": 1}', {"a": 1}, ["repeated"]),
        ('{"nodes": [{"id": "a"}, {"id": "b", "x": {"y": "1', {"nodes": [{"id": "a"}]}, ["truncated"]),
        ('{"nodes": [{"id": "a"}, ', {"nodes": [{"id": "a"}]}, ["truncated"]),
        ('{"nodes": [{"id": "a"}], "output": "x', {"nodes": [{"id": "a"}]}, ["truncated"]),
        ('[{"id": "a"}, {"id": 1', [{"id": "a"}], ["truncated"]),
        ('{"r": {"nodes": [{"id": "a"}, {"i', {"r": {"nodes": [{"id": "a"}]}}, ["truncated"]),
        ("[]", [], []),
    ],
)
def test_json_of_models_is_parsed_and_every_repair_is_reported(text: str, value: Any, codes: list[str]) -> None:
    assert value_and_codes(text) == (value, codes)


def test_repair_reports_its_pointer_and_offset() -> None:
    text = 'x {"a": [1, 2,]}'
    messages = ("text before the plan was skipped", "there is a comma before the closing ']'")
    assert [repair.to_json() for repair in read_written_json(text).repairs] == [
        {"code": "prose", "pointer": "", "offset": 0, "message": messages[0]},
        {"code": "trailing_comma", "pointer": "/a/2", "offset": 14, "message": messages[1]},
    ]


@pytest.mark.parametrize(
    ("text", "code", "message_part"),
    [
        ("", "empty_plan", "no JSON object"),
        ("I cannot do that.", "empty_plan", "no JSON object"),
        ('{"a": 1} or {"a": 2}', "ambiguous", "2 JSON values (at lines 1, 1)"),
        ('```\n{"a": 1}\n```\n```\n{"b": 1}\n```', "ambiguous", "at lines 2, 5"),
        ('{"a": 1, "a": 2}', "invalid_syntax", "'a' occurs twice in one object, with different values"),
        ('{"a": "say "hi" now"}', "invalid_syntax", "an earlier quote was not escaped at line 1, column 13"),
        ('{"a": 1 "b": 2}', "invalid_syntax", "is missing here"),
        ('{"a": [1 2]}', "invalid_syntax", "is missing here"),
        ('{"a": ]}', "invalid_syntax", "expected a value, found ']'"),
        ('{"a": [1}', "invalid_syntax", "expected ']', found '}'"),
        ('{"a": [1, 2, ...]}', "invalid_syntax", "marks an omission; write the complete value"),
        ('{"a": 007}', "invalid_syntax", "starts with 0: write the number without the 0, or a string in quotes"),
        ('{"a": Infinity}', "invalid_syntax", "'Infinity' has no quotes"),
        ('{"a": 1e999}', "invalid_syntax", "does not fit into a double"),
        ('{"a": "\\_x"}', "invalid_syntax", "is not a JSON escape; write two backslashes for one"),
        ('{"a": “x"}', "invalid_syntax", "a quote is missing"),
        ('{"a": “x", "b": "y”}', "invalid_syntax", "typographic and straight quotes are mixed"),
        ('{"nodes": [{"id": "a"}, {"id": "b}]}', "invalid_syntax", "a quote is missing"),
        ('{"a": "\\ud800"}', "invalid_syntax", "lone surrogate"),
        ('{"nodes": [{"id": "a", "x": [1', "invalid_syntax", "cut off before its first step was complete"),
        ('{"title": "x', "invalid_syntax", "ends before anything in it is complete"),
        ('{"a": ' + "[" * 200 + "]" * 200 + "}", "invalid_syntax", "nested more than 100 deep"),
    ],
)
def test_ambiguous_or_invalid_json_is_rejected_with_the_reason(text: str, code: str, message_part: str) -> None:
    ((actual_code, message),) = problems_of(text)
    assert (actual_code, message_part in message) == (code, True), message


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        *((form, "{{a.result}}") for form in ("$1", "${1}", "#E1", "<node-1>", "<GENERATED>-1", "{{1}}")),
        *((form, "{{a.result}}") for form in ("{{ a }}", "@result_1", "$var1$")),
        ("$var1.x[0]$", "{{a.result.x[0]}}"),
        ("$a.x$", "{{a.result.x}}"),
        ("take $1, then <node-1>.", "take {{a.result}}, then {{a.result}}."),
    ],
)
def test_reference_in_the_form_of_another_dialect_is_repaired(form: str, expected: str) -> None:
    # Node `b` cannot depend on itself, so 1 can only be the first node.
    text = plan_text(node("a"), node("b", x=[form]), output=form if form == "$1" else "x")
    document, repairs = read_written_plan(text)
    assert document.plan["nodes"][1]["arguments"] == {"x": [expected]}
    assert document.plan["output"] == (expected if form == "$1" else "x")
    assert {(repair.code, repair.pointer) for repair in repairs} == {
        ("reference", "/nodes/1/arguments/x/0"),
        *([("reference", "/output")] if form == "$1" else []),
    }
    assert [note.code for note in document.notes] == [repair.code for repair in repairs]


def test_number_in_a_reference_is_a_position_from_zero_or_one_or_part_of_an_id() -> None:
    nodes_counted_from_zero = nodes_of(plan_text(node("a"), node("b", x="<node-0>"), node("c", x="<node-1>")))
    assert nodes_counted_from_zero[1:] == [node("b", x="{{a.result}}"), node("c", x="{{b.result}}")]
    # With two nodes, the number 2 is only valid if nodes are counted from one.
    document, _ = read_written_plan(plan_text(node("a"), node("b"), output="$2"))
    assert (document.plan["output"], list(document.problems)) == ("{{b.result}}", [])
    nodes = nodes_of(plan_text(node("step1"), node("step2"), node("step3", x="$1")))
    assert nodes[2] == node("step3", x="{{step1.result}}")


def test_ids_and_dependencies_may_be_numbers() -> None:
    first_node, second_node = node(1), {**node(2), "depends_on": [1]}
    assert nodes_of(plan_text(first_node, second_node)) == [node("1"), {**node("2"), "depends_on": ["1"]}]
    nodes = nodes_of(plan_text(node("a"), {**node("b"), "depends_on": ["$1"]}, {**node("c"), "depends_on": [1, 2]}))
    assert [entry.get("depends_on") for entry in nodes] == [None, ["a"], ["a", "b"]]


def test_ambiguous_or_unknown_node_number_is_rejected() -> None:
    message = "'<node-1>' is ambiguous: counted from 1 it is node 'a', counted from 0 it is node 'b'; both are possible"
    text = plan_text(node("a"), node("b"), node("c", x="<node-1>"))
    assert document_problems(text) == [("ambiguous", "/nodes/2/arguments/x", message)]
    document, _ = read_written_plan(plan_text(node("a"), node("b", x="#E7 and <node-9>")))
    assert [problem.code for problem in document.problems] == ["invalid_reference"] * 2


def test_dollar_amounts_and_plans_in_another_dialect_are_not_repaired() -> None:
    nodes = [node("a"), node("b", x="{{a.result}} under $1 or $5,000"), node("c", x="$900")]
    assert nodes_of(plan_text(*nodes)) == nodes
    text = '[{"task": "t", "id": 0, "dep": [-1], "args": {"x": "$1 #E2"}}]'
    document, repairs = read_written_plan(text)
    assert (document.dialect, document.plan["nodes"][0]["arguments"], repairs) == ("hugginggpt", {"x": "$1 #E2"}, ())


@pytest.mark.parametrize(
    ("tool", "expected"),
    [("serch", "search"), ("Search", "search"), ("send-mail", "send_mail"), ("readFile", "read_file")],
)
def test_misspelled_tool_name_is_repaired(tool: str, expected: str) -> None:
    document, repairs = read_written_plan(plan_text(node("a", tool)), tools=TOOLS)
    assert document.plan["nodes"] == [node("a", expected)]
    assert [(repair.code, repair.pointer, repair.node_id) for repair in repairs] == [("tool", "/nodes/0/tool", "a")]


def test_ambiguous_tool_name_is_rejected_and_an_unknown_tool_name_is_not_changed() -> None:
    message = "there is no tool 'read_filex', and it is unclear which one is meant: 'read_file', 'read_files'"
    text = plan_text(node("a", "read_filex"))
    assert document_problems(text, tools=TOOLS) == [("unknown_tool", "/nodes/0/tool", message)]
    assert nodes_of(plan_text(node("a", "fly")), tools=TOOLS) == [node("a", "fly")]


@pytest.mark.parametrize(
    ("text", "dialect", "first_id"),
    [
        ('My plan:\n1. search("x")\n2. calculator("$1 + ', "llmcompiler", "1"),
        ("Plan: a\n#E1 = search[x]\n#E2 = calculator[#E1 ", "rewoo", "E1"),
    ],
)
def test_text_plan_in_a_response_is_parsed_without_its_truncated_last_step(
    text: str, dialect: str, first_id: str
) -> None:
    document, repairs = read_written_plan(text, tools=TOOLS)
    assert (document.dialect, [entry["id"] for entry in document.plan["nodes"]]) == (dialect, [first_id])
    assert "truncated" in [repair.code for repair in repairs]


def test_repairs_of_one_kind_are_limited() -> None:
    arguments = '{"x": [' + "True, " * 500 + "]}"
    _, repairs = read_written_plan('{"nodes": [{"id": "a", "tool": "t", "arguments": ' + arguments + "}]}")
    assert [repair.code for repair in repairs] == ["python_literal"] * 20 + ["trailing_comma", "python_literal"]
    assert repairs[-1].message == "and in 480 more places"
    text = "{" + ", ".join(f"'k{number}': True" for number in range(MAX_REPAIRS_PER_CODE + 5)) + "}"
    repairs = summarize_repairs(limit_repairs(read_written_json(text).repairs))
    messages = [repair.message for repair in repairs if repair.code == "single_quotes"]
    assert messages == [f"the text 'k0' is in single quotes; {MAX_REPAIRS_PER_CODE + 4} more like it"]
    literal_repairs = list(summarize_repairs(read_written_json('{"a": True, "b": True}').repairs))
    assert len(literal_repairs) == 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=example_count(200), deadline=None)
@given(value=st.dictionaries(st.text(max_size=4), json_values, min_size=1, max_size=4), is_ascii_only=st.booleans())
def test_strict_json_is_parsed_without_repairs(value: Any, is_ascii_only: bool) -> None:
    assert value_and_codes(json.dumps(value, ensure_ascii=is_ascii_only)) == (value, [])


@settings(max_examples=example_count(300), deadline=None)
@given(data=st.data())
def test_truncated_plan_keeps_only_complete_nodes(data: st.DataObject) -> None:
    node_ids = data.draw(st.lists(st.text(max_size=5), min_size=1, max_size=4, unique=True))
    nodes = [node(node_id, x=data.draw(json_values)) for node_id in node_ids]
    text = json.dumps({"plan": 1, "nodes": nodes, "output": "o"})
    truncated_text = text[: data.draw(st.integers(0, len(text)))]
    try:
        value = read_written_json(truncated_text).value
    except PlanInvalid:
        return
    kept_nodes = value.get("nodes", [])
    assert kept_nodes == nodes[: len(kept_nodes)]
    assert set(value) <= {"plan", "nodes", "output"}


@settings(max_examples=example_count(300), deadline=None)
@given(st.text(alphabet="{}[]\"',:\\ \n$1a#/*“”.-`", max_size=60))
def test_any_text_is_parsed_or_rejected_with_plan_invalid(text: str) -> None:
    with contextlib.suppress(PlanInvalid):
        document, _ = read_written_plan(text)
        assert document.plan


@pytest.mark.alone
@pytest.mark.parametrize(
    "text",
    [
        "[" * 60_000,
        "{" * 60_000,
        '[{"a": 1},' * 8_000,
        '{"a": "' + "\\" * 200_000,
        "'" * 200_000,
        "{'a': " * 50_000,
        '[{"a":1}' + ' {"a":1}' * 8_000,
        "1. f(" * 40_000,
        "1. f(\n" * 15_000,
        "#E1 = T[" * 40_000,
        "/*" * 100_000 + '{"a": 1',
        plan_text(*(node(f"a{number}", x="$1 ") for number in range(3000))),
    ],
    ids=range(12),
)
def test_reading_takes_linear_time(text: str) -> None:
    start = time.process_time()
    with contextlib.suppress(PlanInvalid):
        read_written_plan(text)
    assert time.process_time() - start < 5


@pytest.mark.alone
def test_many_unknown_tool_names_are_compared_in_bounded_time() -> None:
    tools = {f"tool_{number:05}": ToolDeclaration(f"tool_{number:05}") for number in range(1_000)}
    text = plan_text(*(node(f"n{number}", f"wrong_{number:05}") for number in range(10_000)))
    start = time.process_time()
    read_written_plan(text, tools=tools)
    assert time.process_time() - start < 5
