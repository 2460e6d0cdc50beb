"""Size limits of a plan. `check` and a run report the same problems.

A region is a group of pure nodes that one activity runs.
"""

from collections.abc import Callable
from typing import Any

import pytest

from dagwright.core.boundary.limits import MAX_INPUT_PLAN_NODES, MAX_RUN_NODES
from dagwright.core.compiler.compilation import compiled_form
from dagwright.core.errors import PlanInvalid
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.plans.preparation import check_plan, compile_within_limits, prepare_plan
from dagwright.protocol import plan_limits
from dagwright.protocol.messages import MessageInvalid
from dagwright.protocol.plan_limits import PlanTooLarge
from dagwright.protocol.run_input import require_valid_plan, run_input_from_json

_TOOLS = {"pure": ToolDeclaration("pure", Effects.PURE), "read": ToolDeclaration("read", Effects.READ)}

_LOW_NODE_LIMIT = 600
_LOW_INPUT_PLAN_NODE_LIMIT = 500
_LOW_EDGE_LIMIT = 20_000


@pytest.fixture
def _low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits, so that plans of a few hundred nodes reach them."""
    monkeypatch.setattr(plan_limits, "MAX_RUN_NODES", _LOW_NODE_LIMIT)
    monkeypatch.setattr(plan_limits, "MAX_PLAN_EDGES", _LOW_EDGE_LIMIT)
    monkeypatch.setattr(plan_limits, "MAX_INPUT_PLAN_NODES", _LOW_INPUT_PLAN_NODE_LIMIT)


low_limits = pytest.mark.usefixtures("_low_limits")


_NODE_LIMIT_MESSAGE = (
    "the plan has too many nodes for a run, not counting those inside of a large region of pure nodes: it has "
    "601, the limit is 600; use for_each instead of many nodes, or split the plan into sub-plans"
)


def _nodes(count: int, tool: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"id": f"{tool}{number}", "tool": tool, **fields} for number in range(count)]


def _size_problems(nodes: list[dict[str, Any]], **fields: Any) -> list[tuple[str, str, str]]:
    """Return the code, pointer and message of each problem. Assert that a run and `check` report the same problems."""
    checked_plan = check_plan({"plan": 1, "nodes": nodes, **fields}, _TOOLS)
    problems_of_run = _problems_of(lambda: prepare_plan(checked_plan, {}))
    assert problems_of_run == _problems_of(lambda: compile_within_limits(checked_plan))
    return problems_of_run


def _problems_of(check: Callable[[], object]) -> list[tuple[str, str, str]]:
    try:
        check()
    except PlanInvalid as error:
        return [(problem.code, problem.pointer, problem.message) for problem in error.problems]
    return []


@low_limits
def test_plan_with_more_nodes_than_the_limit_is_rejected() -> None:
    assert _size_problems(_nodes(_LOW_NODE_LIMIT, "read")) == []
    assert _size_problems(_nodes(_LOW_NODE_LIMIT + 1, "read")) == [("too_large", "", _NODE_LIMIT_MESSAGE)]


@low_limits
def test_run_rejects_a_compiled_plan_with_too_many_nodes() -> None:
    plan = compiled_form(check_plan({"nodes": _nodes(_LOW_NODE_LIMIT + 1, "read")}, _TOOLS))
    with pytest.raises(PlanTooLarge) as error:
        require_valid_plan(plan)
    assert (MAX_RUN_NODES, str(error.value)) == (50_000, _NODE_LIMIT_MESSAGE)


@low_limits
def test_nodes_used_only_inside_their_region_do_not_count_toward_the_limit() -> None:
    pure_nodes = _nodes(_LOW_NODE_LIMIT + 1_000, "pure")
    call = {"id": "call", "tool": "read", "depends_on": ["pure0", "pure7"]}
    assert _size_problems(pure_nodes) == []
    assert _size_problems([*pure_nodes, call], output="{{call.result}}") == []


@low_limits
def test_nodes_of_a_region_that_other_nodes_use_count_toward_the_limit() -> None:
    pure_nodes = _nodes(_LOW_NODE_LIMIT - 1, "pure")
    call = {"id": "call", "tool": "read", "depends_on": [node["id"] for node in pure_nodes]}
    assert _size_problems([*pure_nodes, call]) == [("too_large", "", _NODE_LIMIT_MESSAGE)]


@low_limits
def test_plan_with_more_edges_than_the_limit_is_rejected() -> None:
    dependency_nodes = _nodes(201, "pure", for_each=[1])
    dependencies = [node["id"] for node in dependency_nodes]
    assert _size_problems([*dependency_nodes, *_nodes(99, "read", depends_on=dependencies)]) == []
    [(code, pointer, message)] = _size_problems([*dependency_nodes, *_nodes(100, "read", depends_on=dependencies)])
    assert (code, pointer) == ("too_large", "")
    assert "it has 20,100, the limit is 20,000; add a node that joins common dependencies" in message


@low_limits
@pytest.mark.parametrize(
    ("node", "message_start"),
    [
        (
            {"tool": "read", "for_each": ["x" * 200] * 5_000},
            "the node 'large' is too large, in bytes of its compiled form: it has 1,015,0",
        ),
        (
            {"plan": {"nodes": _nodes(10, "read", arguments={"text": "x" * 100_000})}},
            "the sub-plan 'large' is too large, in bytes of its compiled form: it has 1,000,",
        ),
        (
            {"plan": {"nodes": _nodes(_LOW_INPUT_PLAN_NODE_LIMIT + 1, "read")}},
            "the sub-plan 'large' is too large, in nodes, including those of its own sub-plans: it has 501, the lim",
        ),
    ],
    ids=["items", "sub_plan_bytes", "sub_plan_nodes"],
)
def test_oversized_node_is_reported_with_its_pointer(node: dict[str, Any], message_start: str) -> None:
    [(code, pointer, message)] = _size_problems([*_nodes(2, "read"), {"id": "large", **node}])
    assert (code, pointer, message[: len(message_start)]) == ("too_large", "/nodes/2", message_start)


@low_limits
def test_large_region_of_a_sub_plan_does_not_count_toward_the_limits() -> None:
    sub_plan = {"nodes": _nodes(2_000, "pure", arguments={"text": "x" * 1_000})}
    assert _size_problems([{"id": "sub", "plan": sub_plan}]) == []


def test_plan_fields_other_than_nodes_have_a_limit_in_bytes() -> None:
    [(code, pointer, message)] = _size_problems(_nodes(1, "read"), metadata={"text": "x" * 1_000_000})
    assert (code, pointer) == ("too_large", "")
    assert message.startswith("the fields of the plan other than `nodes` are too large, in bytes of its compiled form:")
    assert " it has 1,000," in message


def test_all_nodes_together_have_a_limit_in_bytes() -> None:
    [(code, pointer, message)] = _size_problems(_nodes(35, "read", arguments={"text": "x" * 950_000}))
    assert (code, pointer) == ("too_large", "")
    assert message.startswith("the plan is too large for a run, in bytes of its compiled form: it has 33,")


def test_compiled_plan_in_a_run_input_has_separate_limits() -> None:
    nodes = [{"id": str(number)} for number in range(MAX_INPUT_PLAN_NODES + 1)]
    with pytest.raises(MessageInvalid) as error:
        run_input_from_json({"compiled": {"format": 1, "nodes": nodes}})
    assert error.value.code == "too_large"
    assert str(error.value) == (
        "the compiled plan is too large for the input of a run, in nodes, including those of its sub-plans: it has "
        "20,001, the limit is 20,000; send the plan as written, in 'plan'"
    )
    sub_plan = {"format": 1, "nodes": [{"id": "a", "arguments": {"text": "x" * 1_000_000}}]}
    with pytest.raises(MessageInvalid, match="a sub-plan is too large, in bytes of its compiled form"):
        run_input_from_json({"compiled": {"format": 1, "nodes": [{"id": "s", "kind": "plan", "sub_plan": sub_plan}]}})
