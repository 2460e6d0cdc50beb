"""Rules across nodes of a plan: inputs that conditions read, and types of results that arguments use."""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, BeforeValidator

from dagwright.core.errors import PlanInvalid
from dagwright.features.commands.steering import current_notes
from dagwright.features.explain.why import why
from dagwright.plans.preparation import check_plan, input_problems
from dagwright.tools import ToolRegistry, tool
from dagwright.tools.builtin import builtin_tools
from dagwright.tools.environment import ToolEnvironment
from tests.support.plan_building import node, started_run


class Person(BaseModel):
    """A person."""

    name: str
    age: int | None = None


@tool(effects="pure")
def hello(name: str) -> str:
    """Greets."""
    return f"Hello {name}"


@tool(effects="pure")
def count(things: list[str]) -> int:
    """Counts."""
    return len(things)


@tool(effects="pure")
def person(name: str) -> Person:
    """Make a person."""
    return Person(name=name)


@tool(effects="pure")
def anything(value: Any = None) -> Any:
    """Return the argument."""
    return value


@tool(effects="pure")
def add(number: float, summand: int = 1) -> float | None:
    """Adds."""
    return number + summand


@tool(effects="pure")
def list_days(day: date) -> list[dict[str, int]]:
    """Lists."""
    return [{"day": day.day}]


@tool(effects="pure")
def loose(name: Annotated[str, BeforeValidator(str)], kind: Literal["1"] = "1", many: str | list[int] = "") -> None:
    """Accept anything."""


TOOLS = {
    **builtin_tools(ToolEnvironment(Path())).declarations(),
    **ToolRegistry.of(hello, count, person, anything, add, list_days, loose).declarations(),
}


def problems_of(*nodes: Mapping[str, Any], **fields: Any) -> Sequence[tuple[str, str, str, str | None]]:
    try:
        check_plan({"plan": 1, "nodes": list(nodes), **fields}, TOOLS)
    except PlanInvalid as invalid:
        return [(problem.code, problem.pointer, problem.message, problem.hint) for problem in invalid.problems]
    return []


def call_node(tool_name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": "b", "tool": tool_name, "arguments": arguments}


_THINGS = "'things' of 'count'"
CALCULATION = {"id": "a", "tool": "calculator", "arguments": {"query": "1 + 1"}}
NET_INPUT = {"net": {"type": "number"}}
HELLO_FIELDS = {"tool": "hello", "arguments": {"name": "x"}}


def test_condition_that_needs_an_undeclared_input_is_rejected_with_the_nearest_name() -> None:
    wrong_node, message = (
        {**CALCULATION, "when": "inputs.nett > 1"},
        "when: there is no input 'nett'; the plan declares net",
    )
    expected = ("invalid_field", "/nodes/0/when", message, "did you mean 'net'?")
    assert problems_of(wrong_node, inputs=NET_INPUT) == [expected]
    sub_plan = {"id": "sub", "plan": {"inputs": NET_INPUT, "nodes": [wrong_node]}, "arguments": {"net": 1}}
    assert [each[:2] for each in problems_of(sub_plan)] == [("invalid_field", "/nodes/0/plan/nodes/0/when")]


@pytest.mark.parametrize(
    ("when", "fields"),
    [
        # A plan that declares no inputs may have any input.
        ("inputs.nett > 1", {}),
        ("inputs.net > 1", {"inputs": NET_INPUT}),
        ("has(inputs.more) && inputs.more > 1", {"inputs": NET_INPUT}),
        ("inputs.other > 1", {"inputs": NET_INPUT, "output": "{{PLACEHOLDER_other}}"}),
    ],
)
def test_condition_may_read_an_input_that_may_exist(when: str, fields: dict[str, Any]) -> None:
    assert problems_of({**CALCULATION, "when": when}, **fields) == []


_STATUSES = "pending, ready, running, waiting, completed, failed, skipped, blocked, cancelled, superseded"


@pytest.mark.parametrize(
    ("when", "problem", "hint"),
    [
        ("a.status == 'complete'", "a.status is never 'complete'", "completed"),
        ('!("canceled" != nodes["a"].status) || true', "a.status is never 'canceled'", "cancelled"),
        ("a.status in ['failed', \"faild\"] ? true : false", "a.status is never 'faild'", "failed"),
        ("a.result > 1 && (a.status == 'done')", "a.status is never 'done'", None),
        ("inputs.net == 'gros'", "inputs.net is never 'gros'", "gross"),
    ],
)
def test_comparison_with_a_text_that_the_value_never_has_is_rejected(when: str, problem: str, hint: str | None) -> None:
    node_with_condition = {**HELLO_FIELDS, "id": "b", "when": when, "join": "all_done"}
    [actual] = problems_of(CALCULATION, node_with_condition, inputs={"net": {"enum": ["net", "gross"]}})
    possible_texts = "net, gross" if "inputs" in problem else _STATUSES
    message = f"when: {problem}: it is one of {possible_texts}"
    expected_hint = None if hint is None else f"did you mean {hint!r}?"
    assert actual == ("invalid_field", "/nodes/1/when", message, expected_hint)


@pytest.mark.parametrize(
    "when",
    [
        "a.status == 'completed' || a.status in ['failed', 'skipped']",
        "a.status == 'comp' + 'leted'",
        "'x' + a.status == 'xfailed'",
        "a.status in ['comp' + 'leted', 'failed']",
        "a.status in []",
        "(a.status == 'completed') == true && a.status != string(a.error)",
        "a.status.startsWith('comp') && size(a.status) > 3",
        "'failed' in [a.status]",
        "a.result == 2 || string(a.result) == 'two'",
    ],
)
def test_comparison_that_may_be_true_is_valid(when: str) -> None:
    assert problems_of(CALCULATION, {**HELLO_FIELDS, "id": "b", "when": when, "join": "all_done"}) == []


@pytest.mark.parametrize(
    ("consumer", "code", "location", "use"),
    [
        (
            call_node("hello", name="{{a.result}}"),
            "invalid_arguments",
            "arguments/name",
            "'name' of 'hello' takes string",
        ),
        (call_node("count", things="{{a.result}}"), "invalid_arguments", "arguments/things", f"{_THINGS} takes array"),
        (
            call_node("count", things=["{{a.result}}"]),
            "invalid_arguments",
            "arguments/things/0",
            f"{_THINGS} takes string",
        ),
        (
            {**call_node("hello", name="x"), "for_each": "{{a.result}}"},
            "invalid_field",
            "for_each",
            "for_each takes a list",
        ),
    ],
)
def test_result_is_rejected_where_its_type_is_not_accepted(consumer: Any, code: str, location: str, use: str) -> None:
    [problem] = problems_of(CALCULATION, consumer)
    message = f"{{{{a.result}}}} is integer or number, as the tool 'calculator' declares its result, and {use}"
    assert problem[:3] == (code, f"/nodes/1/{location}", message)


APPROVAL_NODE = {"id": "ask", "human": {"prompt": "Publish?"}}
SELECTION_NODE = {"id": "where", "human": {"type": "SELECTION", "prompt": "Where?", "options": ["web", "mail"]}}
SUB_PLAN = {
    "id": "sub",
    "plan": {
        "inputs": {"n": {"type": "integer"}},
        "nodes": [CALCULATION],
        "output": {"gross": "{{a.result}}", "texts": ["x"]},
    },
    "arguments": {"n": 1},
}
SUB_PLAN_WITHOUT_OUTPUT = {
    "id": "sinks",
    "plan": {"nodes": [CALCULATION, {**HELLO_FIELDS, "id": "last", "depends_on": ["a"]}]},
}
INLINE_AGENT = {"id": "text", "agent": {"prompt": "You write."}, "objective": "Write."}
DAYS_NODE = {"id": "a", "tool": "list_days", "arguments": {"day": "2026-01-01"}}
PERSON_NODE = {"id": "a", "tool": "person", "arguments": {"name": "x"}}


@pytest.mark.parametrize(
    ("producer", "consumer", "expected_message"),
    [
        (SELECTION_NODE, call_node("count", things="{{where.result.x}}"), "where.result has no part 'x'"),
        (SELECTION_NODE, call_node("count", things="{{where.result}}"), "{{where.result}} is object, and"),
        (SUB_PLAN, call_node("hello", name="{{sub.result.gros}}"), "sub.result has no part 'gros'"),
        (SUB_PLAN, call_node("hello", name="{{sub.result.gross}}"), "{{sub.result.gross}} is integer or"),
        (SUB_PLAN, call_node("hello", name="{{sub.result.texts[1]}}"), "sub.result.texts has no part 1"),
        (
            SUB_PLAN_WITHOUT_OUTPUT,
            call_node("hello", name="{{sinks.result.a}}"),
            "sinks.result has no part 'a': it has",
        ),
        (INLINE_AGENT, call_node("count", things="{{text.result}}"), "{{text.result}} is string, and 'things'"),
        (SELECTION_NODE, {**SUB_PLAN, "arguments": {"n": "{{where.result}}"}}, "the sub-plan's input 'n' takes"),
    ],
)
def test_missing_part_or_wrong_type_in_an_argument_is_rejected(
    producer: Any, consumer: Any, expected_message: str
) -> None:
    [(_, pointer, message, _)] = problems_of(producer, {**consumer, "id": "b"})
    [argument] = consumer["arguments"]
    assert (pointer, expected_message in message) == (f"/nodes/1/arguments/{argument}", True), message


@pytest.mark.parametrize(
    ("producer", "fields", "location", "expected_message"),
    [
        (APPROVAL_NODE, {"when": "ask.result.aproved"}, "when", "ask.result has no part 'aproved': it has approved, "),
        (APPROVAL_NODE, {"when": "ask.result"}, "when", "when: ask.result is object, and not a condition"),
        (
            APPROVAL_NODE,
            {"when": "size(ask.error.mesage) > 1"},
            "when",
            "ask.error has no part 'mesage': it has code, ",
        ),
        (DAYS_NODE, {"for_each": "{{a.result}}", "key": "{{item.day.x}}"}, "key", "item.day has no part"),
        (PERSON_NODE, {"when": "a.result.nme == 'x'"}, "when", "a.result has no part 'nme': it has name, age"),
    ],
)
def test_missing_part_or_wrong_type_in_a_field_is_rejected(
    producer: Any, fields: Any, location: str, expected_message: str
) -> None:
    [(_, pointer, message, _)] = problems_of(producer, {**HELLO_FIELDS, **fields, "id": "b"})
    assert (pointer, expected_message in message) == (f"/nodes/1/{location}", True), message


def test_options_of_a_selection_must_be_a_list() -> None:
    human = {"type": "SELECTION", "prompt": "Who?", "options": "{{a.result}}"}
    [(_, pointer, message, _)] = problems_of(PERSON_NODE, {"id": "b", "human": human})
    assert pointer == "/nodes/1/human/options"
    assert message.startswith("{{a.result}} is object, as the tool 'person' declares its result, and opti")


def test_missing_part_in_the_output_is_rejected() -> None:
    actual = problems_of(PERSON_NODE, output={"name": "{{a.result.nme}}"})
    message = "a.result has no part 'nme': it has name, age"
    assert actual == [("invalid_reference", "/output/name", message, "did you mean 'name'?")]


@pytest.mark.parametrize(
    ("producer", "consumer"),
    [
        (CALCULATION, call_node("hello", name="It is {{a.result}}")),
        (CALCULATION, call_node("add", number="{{a.result}}", summand="{{a.result}}")),
        (CALCULATION, call_node("list_days", day="{{a.result}}")),
        (CALCULATION, call_node("loose", name="{{a.result}}")),
        (CALCULATION, call_node("loose", name="x", kind="{{a.result}}")),
        (CALCULATION, call_node("anything", value="{{a.result}}")),
        ({**CALCULATION, "on_error": {"value": "none"}}, call_node("hello", name="{{a.result}}")),
        ({**CALCULATION, "for_each": [1, 2]}, call_node("count", things="{{a.result}}")),
        ({"id": "a", "tool": "hello", "arguments": {"name": "7"}}, call_node("add", number="{{a.result}}")),
        ({"id": "a", "tool": "anything"}, call_node("hello", name="{{a.result}}")),
        ({**CALCULATION, "when": "false"}, {**call_node("loose", name="x", kind="{{a.result}}"), "join": "all_done"}),
        ({"id": "a", "tool": "add", "arguments": {"number": 1}}, call_node("add", number="{{a.result}}")),
        (DAYS_NODE, {**call_node("add", number="{{item.day}}"), "for_each": "{{a.result}}"}),
        (DAYS_NODE, call_node("add", number="{{a.result[0].day}}")),
        ({"id": "a", "tool": "hello", "arguments": {"name": "x"}}, call_node("loose", name="x", many="{{a.result}}")),
    ],
)
def test_reference_that_may_fit_its_use_is_valid(producer: Any, consumer: Any) -> None:
    assert problems_of(producer, consumer) == []


def test_node_skipped_because_of_a_missing_value_has_a_note_and_an_explanation() -> None:
    scheduler = started_run(
        node("a"),
        node("b", "a", when="a.result.valeu > 1"),
        node("c", "a", when="a.result.n > 5"),
        node("d", "a", when="has(a.result.x) && a.result.x > 1"),
    )
    scheduler.complete("a", {"value": 3, "n": 1}, at=1.0)
    message = "skipped, because its condition reads missing values: a.result.valeu is missing"
    assert current_notes(scheduler) == [{"code": "missing_value", "node_id": "b", "message": message}]
    assert [why(scheduler, node_id, calls={}).reasons[0].detail for node_id in "bc"] == [
        "its condition is false: a.result.valeu > 1 (a.result.valeu is missing)",
        "its condition is false: a.result.n > 5",
    ]


def test_declared_type_of_an_input_is_compared_with_its_use() -> None:
    plan = {
        "inputs": {"n": {"type": "integer"}, "things": {"type": "array"}, "any": {"type": ["array", "integer"]}},
        "nodes": [
            {**call_node("hello", name="x"), "id": "wrong", "for_each": "{{PLACEHOLDER_n}}"},
            {**call_node("count", things="{{PLACEHOLDER_n}}"), "id": "argument"},
            {**call_node("hello", name="x"), "id": "right", "for_each": "{{PLACEHOLDER_things}}"},
            {**call_node("count", things="{{PLACEHOLDER_any}}"), "id": "maybe"},
        ],
    }
    with pytest.raises(PlanInvalid) as caught:
        check_plan(plan, TOOLS)
    hint = "declare the input with another type, or do not use 'n' here"
    message_start = "{{PLACEHOLDER_n}} is declared as integer, and"
    assert [(problem.pointer, problem.node_id, problem.message, problem.hint) for problem in caught.value.problems] == [
        ("/nodes/0/for_each", "wrong", f"{message_start} for_each takes a list", hint),
        ("/nodes/1/arguments/things", "argument", f"{message_start} 'things' of 'count' takes array", hint),
    ]


def test_placeholder_similar_to_a_declared_input_has_a_note() -> None:
    arguments = {"name": "{{PLACEHOLDER_naem}} {{PLACEHOLDER_other}}"}
    nodes = [{**call_node("hello", **arguments), "id": "a"}]
    checked_plan = check_plan({"inputs": {"name": {"type": "string"}}, "nodes": nodes}, TOOLS)
    message = "PLACEHOLDER_naem adds the input 'naem', which the plan does not declare; did you mean 'name'?"
    assert [(note.code, note.message, note.node_id, note.pointer) for note in checked_plan.notes] == [
        ("undeclared_input", message, "a", "/nodes/0/arguments/name")
    ]
    missing_input = "the input 'naem' is missing: PLACEHOLDER_naem uses it, and the plan does not declare it"
    problems = input_problems(checked_plan, {"name": "x", "other": "y"}, given_names=["name", "other"])
    assert [(problem.message, problem.hint, problem.pointer) for problem in problems] == [
        (missing_input, "did you mean 'name'?", "/inputs/naem")
    ]
    assert [*check_plan({"nodes": nodes}, TOOLS).notes] == []


def test_all_kinds_of_problems_are_reported_in_one_pass() -> None:
    plan = {
        "inputs": {"net": {"type": "number"}, "day": {"type": "dat"}},
        "nodes": [
            {"id": "typo", "tool": "calculatr", "arguments": {"expression": "1"}},
            {**HELLO_FIELDS, "id": "key", "timeot": "1s"},
            {**HELLO_FIELDS, "id": "when", "when": "inputs.nett > 1"},
            {**HELLO_FIELDS, "id": "declared", "when": "inputs.day == 'x'"},
            {**HELLO_FIELDS, "id": "each", "for_each": "{{PLACEHOLDER_net}}"},
            {"id": "flow", "tool": "count", "arguments": {"things": "{{plain.result}}"}},
            {**HELLO_FIELDS, "id": "plain", "depends_on": ["gone"]},
            "no node",
        ],
    }
    with pytest.raises(PlanInvalid) as caught:
        check_plan(plan, TOOLS)
    assert sorted(problem.pointer for problem in caught.value.problems) == [
        *("/inputs/day/type", "/nodes/0/tool", "/nodes/1/timeot", "/nodes/2/when", "/nodes/4/for_each"),
        *("/nodes/5/arguments/things", "/nodes/6/depends_on/0", "/nodes/7"),
    ]


@pytest.mark.parametrize("heartbeat", ["999ms", "1s"])
def test_heartbeat_is_at_least_a_second(heartbeat: str) -> None:
    inner_plan = {"nodes": [{**HELLO_FIELDS, "id": "b", "heartbeat": heartbeat}]}
    actual = problems_of({**HELLO_FIELDS, "id": "a"}, {"id": "sub", "plan": inner_plan})
    message = "heartbeat: must be at least 1s: a busy worker may miss a shorter timeout"
    expected = [("invalid_field", "/nodes/1/plan/nodes/0/heartbeat", message)]
    assert [each[:3] for each in actual] == (expected if heartbeat == "999ms" else [])


def test_circular_schema_of_an_answer_causes_no_problem() -> None:
    circular_schema = {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}
    schema = {**circular_schema, "$defs": {"a": {**circular_schema, "title": "a"}}}
    form = {"id": "form", "human": {"type": "INFORMATION", "prompt": "What?", "schema": schema}}
    assert problems_of(form, call_node("hello", name="{{form.result.data.any.part}}")) == []
