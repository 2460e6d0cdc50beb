"""The compiled plan: its content, unsupported features, and its JSON and column formats."""

from collections.abc import Callable
from typing import Any

import pydantic_core
import pytest

from dagwright.core.compiler.compilation import compile_plan, compile_with_planner
from dagwright.core.compiler.node_columns import (
    encoded_sub_plans,
    nodes_from_columns,
    nodes_to_columns,
    plan_from_columns,
    plan_to_columns,
)
from dagwright.core.errors import PlanInvalid, pointer
from dagwright.core.expressions.references import Index, Item, ResultOf
from dagwright.core.model.agents import AgentCard, agent_declaration
from dagwright.core.model.compiled import (
    CompiledNode,
    CompiledPlan,
    RetryRule,
    field_to_json,
    plan_from_json,
    plan_to_json,
)
from dagwright.core.model.tools import Effects, ToolDeclaration, parameter_name
from tests.support.plan_building import TOOLS, check, compiled_plan, node, plan_of, problems_of

_MAP_FIELDS = {
    **{"for_each": "{{a.result.files[*]}}", "key": "{{item.name}}-{{index}}", "max_parallel": 2, "join": "any"},
    "arguments": {"x": ["{{item}}", "{{secret.KEY}}", 1], "y": {"z": "n={{a.result}}"}, "0": None},
    "when": "a.result.n > 1",
    "retry": {"max_attempts": 5, "first_delay": "500ms", "factor": 3.5, "max_delay": "1m"},
    "on_error": {"value": [None]},
}
FULL_PLAN = plan_of(
    node("a", title="First", timeout="90s", heartbeat="5s", priority=1),
    node("b", "a", **_MAP_FIELDS),
    node("c", for_each=[1, {"n": "{{a.result}}"}], on_error="skip", join={"at_least": 1}, depends_on=["b"]),
    node("s", plan=plan_of(node("inner", arguments={"q": "{{PLACEHOLDER_q}}"})), arguments={"q": "{{b.result}}"}),
    title="All of it",
    metadata={"confidence": 0.9},
    inputs={"n": {"type": "integer", "default": 4}},
    on_failure="fail_fast",
    deadline="2h",
    output={"all": ["{{c.result}}", 1]},
)
_NODES_WITH_WORKER_TOOL = (0,)
"""Numbers of the nodes of `FULL_PLAN` whose tool is a worker tool: the node `a`."""


def test_compiled_plan_survives_serialization_and_ignores_fields_of_newer_versions() -> None:
    created_plan = compile_plan(check(FULL_PLAN, worker_tool_nodes=_NODES_WITH_WORKER_TOOL))
    # Tools that no node uses are omitted.
    assert created_plan.tools.keys() == {"any"}
    decoded_plan = plan_from_json(plan_to_json(created_plan))
    assert compiled_plan(FULL_PLAN, worker_tool_nodes=_NODES_WITH_WORKER_TOOL) == decoded_plan == created_plan
    plan = plan_from_json({"format": 1, "nodes": [{"id": "a", "colour": "red"}], "mood": "good"})
    assert [node.id for node in plan.nodes] == ["a"]


def test_compiled_node_has_numbers_of_dependencies_bindings_and_durations_in_seconds() -> None:
    plan = compiled_plan(FULL_PLAN, worker_tool_nodes=_NODES_WITH_WORKER_TOOL)
    assert plan.nodes[1] == CompiledNode(
        id="b",
        tool="any",
        arguments={"x": [None, None, 1], "y": {"z": None}, "0": None},
        bindings=plan.nodes[1].bindings,
        dependencies=(0,),
        join=("any", 0),
        when="a.result.n > 1",
        for_each=(ResultOf("a", "result", "$.files[*]"),),
        key=(Item(("name",)), "-", Index()),
        max_parallel=2,
        on_error="value",
        value=[None],
        retry=RetryRule(max_attempts=5, first_delay_s=0.5, factor=3.5, max_delay_s=60.0),
    )
    assert [path for path, _ in plan.nodes[1].bindings] == [("x", 0), ("x", 1), ("y", "z")]
    assert (plan.nodes[0].timeout_s, plan.nodes[0].heartbeat_s, plan.nodes[0].is_worker) == (90.0, 5.0, True)
    assert plan.nodes[2].for_each == [1, {"n": None}]
    assert plan.nodes[2].item_bindings == (((1, "n"), (ResultOf("a", "result"),)),)
    assert (plan.deadline_s, plan.on_failure, plan.output) == (7200.0, "fail_fast", {"all": [None, 1]})
    assert plan.nodes[3].kind == "plan"
    assert plan.nodes[3].sub_plan is not None
    assert list(plan.nodes[3].sub_plan.inputs) == ["q"]


def test_cache_and_timeout_are_compiled_to_seconds() -> None:
    nodes = (node("a"), node("b", cache="off"), node("c", cache={"ttl": "1h"}), node("d", cache=None))
    plan = compiled_plan(plan_of(*nodes))
    assert [node.cache_s for node in plan.nodes] == [None, 0.0, 3600.0, None]
    tools = {"t": ToolDeclaration("t", timeout_s=5.0)}
    plan = compiled_plan(plan_of(node("a", tool="t"), node("b", tool="t", timeout="7s")), tools=tools)
    assert [node.timeout_s for node in plan.nodes] == [5.0, 7.0]


@pytest.mark.parametrize(
    ("effects", "tool_attempts", "retry", "expected_attempts"),
    [
        (Effects.WRITE, None, None, 1),
        (Effects.READ, None, None, 3),
        (Effects.IDEMPOTENT, 7, None, 7),
        (Effects.WRITE, None, {"max_attempts": 2}, 2),
        (Effects.READ, 7, {"first_delay": "2s"}, 7),
    ],
)
def test_attempts_come_from_the_plan_or_the_tool_or_the_effects(
    effects: Effects, tool_attempts: int | None, retry: dict[str, Any] | None, expected_attempts: int
) -> None:
    tools = {"t": ToolDeclaration("t", effects, max_attempts=tool_attempts)}
    plan = compiled_plan(plan_of(node("a", tool="t", retry=retry)), tools=tools)
    assert plan.nodes[0].retry.max_attempts == expected_attempts


_NO_PLANNER = "on_error: replan: only runs of `dagwright ask` have a planner, and sub-plans have no planner"


def test_unsupported_fields_are_rejected_with_their_location() -> None:
    inner_plan = plan_of(node("h", human={"type": "APPROVAL", "prompt": "Go?"}), node("i", on_error="replan"))
    raw = plan_of(
        node("a", on_error="ask", approval="required"),
        node("b", on_error="replan", approval={"type": "APPROVAL"}),
        node("c", agent="writer", objective="Write", retry={"max_attempts": 2}),
        node("d", plan=inner_plan),
    )
    card = AgentCard(name="writer", description="Writes", objective_template="Write", type="llm", prompt="Write!")
    tools = {**TOOLS, "agent.writer": agent_declaration(card)}
    assert problems_of(raw, tools=tools) == ()
    with pytest.raises(PlanInvalid) as caught:
        compile_plan(check(raw, tools=tools))
    assert [(problem.code, problem.pointer, problem.node_id, problem.message) for problem in caught.value.problems] == [
        ("not_supported", "/nodes/2/retry", "c", "retry of an agent of type llm: not supported yet"),
        ("not_supported", "/nodes/1/on_error", "b", _NO_PLANNER),
        ("not_supported", "/nodes/3/plan/nodes/1/on_error", "i", _NO_PLANNER),
    ]
    replanning_plan = plan_of(node("a", on_error="replan"))
    assert [node.on_error for node in compile_with_planner(check(replanning_plan)).nodes] == ["replan"]
    with pytest.raises(PlanInvalid) as caught:
        compile_with_planner(check(plan_of(node("d", plan=replanning_plan))))
    [problem] = caught.value.problems
    assert (problem.pointer, problem.message) == ("/nodes/0/plan/nodes/0/on_error", _NO_PLANNER)


def test_agent_node_is_compiled_to_a_call_of_the_tool_with_the_same_name() -> None:
    tools = {**TOOLS, "writer": ToolDeclaration("writer", Effects.READ)}
    writer = node("w", "a", agent="writer", objective="Sum up {{a.result.n}}")
    plan = compiled_plan(plan_of(node("a"), writer), tools=tools)
    agent_node = plan.nodes[1]
    assert (agent_node.kind, agent_node.tool) == ("tool", "writer")
    assert agent_node.arguments == {"objective": None, "context": {"a": None}}
    assert agent_node.bindings == (
        (("objective",), ("Sum up ", ResultOf("a", "result", ("n",)))),
        (("context", "a"), (ResultOf("a", "result"),)),
    )
    assert plan.tools["writer"].effects is Effects.READ


@pytest.mark.parametrize(
    "encoded",
    [
        {},
        {"format": 2, "nodes": []},
        {"format": 1},
        {"format": 1, "nodes": [5]},
        {"format": 1, "nodes": [{"id": "a", "bindings": [[["x"], [{"nonsense": 1}]]]}]},
        {"format": 1, "nodes": [], "tools": {"t": {"effects": "odd"}}},
    ],
)
def test_json_that_is_not_a_compiled_plan_is_rejected(encoded: Any) -> None:
    with pytest.raises(ValueError, match=r"compiled plan|reference|effects|Effects"):
        plan_from_json(encoded)


def test_key_with_hyphens_names_the_parameter_with_underscores() -> None:
    parameters: dict[str, Any] = {"cbu_id": {}, "a-b": {}}
    names = {"cbu-id": "cbu_id", "cbu_id": "cbu_id", "a-b": "a-b", "x-y": "x-y"}
    assert {key: parameter_name(key, parameters) for key in names} == names


def test_pointer_escapes_slashes_and_tildes() -> None:
    assert pointer("nodes", 0, "a/b", "~", "") == "/nodes/0/a~1b/~0/"


def test_schemas_of_tools_are_kept_up_to_a_limit_per_tool_and_in_total_but_never_for_pure_tools() -> None:
    def tool(name: str, size: int, effects: Effects = Effects.WRITE) -> ToolDeclaration:
        return ToolDeclaration(name, effects, {"type": "object", "description": "x" * size})

    tools = [tool("long", 17_000), tool("pure", 10, Effects.PURE), *(tool(f"t{number}", 15_000) for number in range(6))]
    plan = plan_of(*(node(tool.name, tool=tool.name) for tool in tools))
    actual = compiled_plan(plan, tools={tool.name: tool for tool in tools}).tools
    names_with_schema = [name for name, each in actual.items() if each.input_schema is not None]
    assert names_with_schema == ["t0", "t1", "t2", "t3"]
    assert [actual["t0"], actual["long"].input_schema] == [tool("t0", 15_000), None]


_NODES = compiled_plan(
    plan_of(
        node("a", timeout="5s", retry={"max_attempts": 2}, on_error={"value": True}),
        node("b", "a", arguments={"x": ["{{a.result.rows[0]}} of {{PLACEHOLDER_p}}"]}, on_error={"value": 1}),
        node("each", for_each="{{a.result}}", key="{{item.id}}", arguments={"x": "{{item}}", "y": "{{b.result}}"}),
        node("list", for_each=[1, "{{b.error}}"], max_parallel=1, priority=5),
        node("last", "a", "b", join={"at_least": 1}, when="a.result.n > 1", cache="off", on_error={"value": 0}),
        {"id": "sub", "plan": plan_of(node("a"))},
    )
).nodes


@pytest.mark.parametrize("nodes", [_NODES, _NODES[:1], _NODES[1:3], ()], ids=["all", "one", "two", "none"])
def test_nodes_survive_serialization(nodes: tuple[CompiledNode, ...]) -> None:
    encoded = pydantic_core.from_json(pydantic_core.to_json(nodes_to_columns(nodes)))

    decoded = nodes_from_columns(encoded)

    assert [repr(each) for each in decoded] == [repr(node) for node in nodes]


def test_whole_results_in_arguments_are_encoded_as_the_ids_or_numbers_of_their_nodes() -> None:
    second = {"x": "{{a.result}}", "y": "{{a.result.n}}"}
    third = {"x": "{{a.result}}", "y": 1}
    last = node("d", arguments={"x": ["{{a.result}}"]})
    plan = compiled_plan(plan_of(node("a"), node("b", arguments=second), node("c", arguments=third), last))
    bindings_by_key = {"x": "a", "y": [{"node": "a", "path": ["n"]}]}

    columns, objects = plan_to_columns(plan)["nodes"]["each"], plan_to_json(plan)["nodes"]

    assert columns["bindings"] == [{}, {**bindings_by_key, "x": 0}, {"x": 0}, [[["x", 0], 0]]]
    assert columns["arguments"] == [{}, {}, {"x": None, "y": 1}, {"x": [None]}]
    assert objects[1] == {"id": "b", "tool": "any", "bindings": bindings_by_key, "dependencies": [0]}


def test_bindings_are_encoded_as_one_list_if_they_all_belong_to_the_same_argument() -> None:
    # A source on another page of the plan has no number among these nodes, so the binding contains its ID.
    source_id = "source on another page"
    nodes = [CompiledNode(id="a"), *(_bound_node(each, "a") for each in "bc"), _bound_node("d", source_id)]

    encoded = pydantic_core.from_json(pydantic_core.to_json(nodes_to_columns(nodes)))

    assert encoded["each"] == {"id": [*"abcd"], "bindings": {"x": [None, 0, 0, source_id]}}
    assert [repr(each) for each in nodes_from_columns(encoded)] == [repr(node) for node in nodes]


def _bound_node(node_id: str, source_id: str) -> CompiledNode:
    """Return a node whose argument `x` is the result of another node."""
    return CompiledNode(id=node_id, arguments={"x": None}, bindings=((("x",), (ResultOf(source_id, "result"),)),))


def test_value_of_consecutive_nodes_is_encoded_once_with_the_number_of_the_first_node() -> None:
    nodes = [CompiledNode(id=node_id, dependencies=() if node_id < "c" else (0, 1)) for node_id in "abcdefgh"]
    nodes[2] = CompiledNode(id="c", title="C", retry=RetryRule(5), on_error="value", value=1)
    nodes[3] = CompiledNode(id="d", on_error="value", value=True, dependencies=(0, 1))

    encoded = pydantic_core.from_json(pydantic_core.to_json(plan_to_columns(CompiledPlan(nodes))))

    assert encoded["nodes"]["each"] == {"id": [*"abcdefgh"]}
    retry = field_to_json("retry", RetryRule())
    assert encoded["nodes"]["from"] == {
        **{"title": {"2": "C", "3": None}, "retry": {"2": {**retry, "max_attempts": 5}, "3": retry}},
        **{"on_error": {"2": "value", "4": "block"}, "value": {"2": 1, "3": True, "4": None}},
        "dependencies": {"3": [0, 1]},
    }
    assert repr(plan_from_columns(encoded)) == repr(CompiledPlan(tuple(nodes)))


@pytest.mark.parametrize("encode", [plan_to_columns, plan_to_json])
def test_nodes_are_counted_and_sub_plans_are_found_in_both_encodings(
    encode: Callable[[CompiledPlan], dict[str, Any]],
) -> None:
    sub_plan = CompiledPlan((CompiledNode(id="x"),))
    nodes = [CompiledNode(id="a"), CompiledNode(id="b"), CompiledNode(id="s", kind="plan", sub_plan=sub_plan)]
    for plan in (CompiledPlan(nodes), CompiledPlan(nodes[1:]), CompiledPlan(nodes[2:])):
        encoded = pydantic_core.from_json(pydantic_core.to_json(encode(plan)))["nodes"]
        assert encoded_sub_plans(encoded) == (len(plan.nodes), [plan_to_json(sub_plan) | {"nodes": [{"id": "x"}]}])


@pytest.mark.parametrize("nodes", [None, 7, "ab", {}, {"same": 1, "from": [], "each": {"id": 7, "sub_plan": 7}}])
def test_invalid_nodes_are_not_counted(nodes: Any) -> None:
    assert encoded_sub_plans(nodes) == (0, [])


def test_common_value_is_encoded_once_and_a_column_of_the_caller_replaces_the_values_of_the_nodes() -> None:
    nodes = [CompiledNode("a", tool="any"), CompiledNode("b", tool="any", dependencies=(0,))]

    assert nodes_to_columns(nodes, {"kind": ["tool", "external"]}) == {
        "same": {"tool": "any"},
        "each": {"id": ["a", "b"], "kind": ["tool", "external"], "dependencies": [(), (0,)]},
    }


_INVALID_NUMBERS = ("1", "-1", "x", "", "0" * 5000)
_MALFORMED_BINDINGS: tuple[Any, ...] = ({"x": []}, {"x": 7}, [7], [[7]], [[[7, 0]]])


@pytest.mark.parametrize(
    "encoded",
    [
        *(None, [], {"same": {}, "each": {}}),
        *({"same": {}, "each": each} for each in ({"id": "ab"}, {"id": [1]}, {"id": ["a"], "tool": []})),
        *({"same": {}, "each": {"id": ["a"], **each}} for each in ({"tool": "t"}, {"dependencies": [None]})),
        *({"same": {}, "from": {"title": {number: "t"}}, "each": {"id": ["a"]}} for number in _INVALID_NUMBERS),
        *({"same": {}, "each": {"id": ["a"], "bindings": [{"x": number}]}} for number in (1, -1, True, None)),
        *({"same": {}, "each": {"id": ["a"], "bindings": each}} for each in ({"x": [1]}, {}, {"x": [0], "y": [0]}, 7)),
        *({"same": {}, "each": {"id": ["a"], "bindings": binding}} for binding in _MALFORMED_BINDINGS),
        {"same": {}, "from": {"title": {"1": "t", "0": "u"}}, "each": {"id": ["a", "b"]}},
        {"same": {}, "from": [], "each": {"id": ["a"]}},
        {"same": {}, "from": {"title": []}, "each": {"id": ["a"]}},
        {"same": {}, "from": {"kind": {"0": "odd"}}, "each": {"id": ["a"]}},
        {"same": {"kind": "unknown"}, "each": {"id": ["a"]}},
        {"same": {"kind": []}, "each": {"id": ["a"]}},
        {"same": {"retry": {"unknown": 1}}, "each": {"id": ["a"]}},
    ],
)
def test_invalid_columns_of_nodes_are_rejected(encoded: Any) -> None:
    with pytest.raises(ValueError, match="not part of a compiled plan"):
        nodes_from_columns(encoded)
