"""Replans: their reasons, the nodes that can no longer run, and new nodes."""

import json
from typing import Any

import pytest

from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.document import Document
from dagwright.core.model.policy import ALLOW_ALL
from dagwright.core.model.states import NodeError, NodeStatus, Record
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.scheduler.run_state import RunState
from dagwright.planner.plan_parser import can_start_early
from dagwright.planner.reserved_ids import rename_reserved_ids
from dagwright.planning.plan_and_execute.replan_context import REPLAN_CONTEXTS, ReplanContext
from dagwright.planning.plan_and_execute.replans import reasons_of, replan_title, unreachable_ids

COMPLETED, FAILED, BLOCKED = NodeStatus.COMPLETED, NodeStatus.FAILED, NodeStatus.BLOCKED
SKIPPED, CANCELLED = NodeStatus.SKIPPED, NodeStatus.CANCELLED


def state_of(*nodes: tuple[CompiledNode, NodeStatus]) -> RunState:
    state = RunState(CompiledPlan(tuple(node for node, _ in nodes)), {}, policy=ALLOW_ALL)
    for record, (_, status) in zip(state.records, nodes, strict=True):
        record.status = status
    return state


def make_node(node_id: str, *dependencies: int, join: str = "all", join_count: int = 0, **fields: Any) -> CompiledNode:
    return CompiledNode(node_id, dependencies=dependencies, join=(join, join_count), **fields)  # type: ignore[arg-type]  # any join


@pytest.mark.parametrize(
    ("replaced_ids", "expected"),
    [
        ([], ("a", "b", "x", "y", "z", "t")),
        # `x` also needs the failed node `b`, and `z` needs `x`.
        (["a"], ("b", "x", "z")),
        (["a", "b"], ()),
        # A replaced blocked node no longer blocks its dependents.
        (["a", "x"], ("b",)),
    ],
)
def test_unreachable_nodes_are_failed_nodes_and_nodes_that_need_them(
    replaced_ids: list[str], expected: tuple[str, ...]
) -> None:
    state = state_of(
        (make_node("a"), FAILED),
        (make_node("b"), FAILED),
        (make_node("c"), COMPLETED),
        (make_node("x", 0, 1, 2), BLOCKED),
        (make_node("y", 0, 1, join="any"), BLOCKED),
        (make_node("z", 3), BLOCKED),
        (make_node("t", 0, 1, join="at_least", join_count=1), BLOCKED),
        (make_node("s", on_error="skip"), FAILED),
        (make_node("u", 7), SKIPPED),
    )
    assert unreachable_ids(state, list(state.visible_nodes()), replaced_ids) == expected


@pytest.mark.parametrize("step", [1, -1], ids=["forward", "backward"])
def test_unreachable_nodes_of_a_long_chain_are_found_in_linear_time(step: int) -> None:
    class VisitCountingRecords(list[Record]):
        visits = 0

        def __getitem__(self, index: Any) -> Any:
            VisitCountingRecords.visits += 1
            return super().__getitem__(index)

    count = 1_000
    numbers = list(range(1, count))[::step]
    previous_numbers = dict(zip(numbers, [0, *numbers], strict=False))
    nodes = [make_node(f"n{number}", previous_numbers[number]) for number in range(1, count)]
    state = state_of((make_node("a"), FAILED), *((node, BLOCKED) for node in nodes))
    visible_nodes = [*state.visible_nodes()]
    state.records = VisitCountingRecords(state.records)
    assert unreachable_ids(state, visible_nodes, ()) == ("a", *(f"n{number}" for number in range(1, count)))
    assert VisitCountingRecords.visits < 4 * count


def test_node_after_a_manually_cancelled_node_stays_unreachable() -> None:
    state = state_of((make_node("a"), FAILED), (make_node("b"), CANCELLED), (make_node("c", 0, 1), BLOCKED))
    assert unreachable_ids(state, list(state.visible_nodes()), ["a"]) == ("c",)


def test_replan_reasons_are_guidance_texts_and_failures_of_nodes_with_on_error_replan() -> None:
    def human_node(node_id: str, kind: str = "GUIDANCE") -> CompiledNode:
        return CompiledNode(node_id, kind="human", arguments={"type": kind})

    error = NodeError("tool_failed", "no\nway")
    visible_nodes = [
        (make_node("a", on_error="replan"), Record(FAILED, error=error)),
        (make_node("b"), Record(FAILED, error=error)),
        (make_node("c", on_error="replan"), Record(BLOCKED)),
        (human_node("north"), Record(COMPLETED, {"text": " Look north "})),
        (human_node("done"), Record(COMPLETED, {"text": "see nodes", "nodes": ["x"]})),
        (human_node("blank"), Record(COMPLETED, {"text": " "})),
        (human_node("many"), Record(COMPLETED, [{"text": "one"}, {"text": "two"}, None])),
        (human_node("other", "CLARIFICATION"), Record(COMPLETED, {"text": "so"})),
        (make_node("replanned", on_error="replan"), Record(FAILED, error=error)),
    ]
    actual = reasons_of(visible_nodes, handled_ids={"replanned"})
    assert [(reason.node_id, reason.description) for reason in actual] == [
        ("a", "'a' failed: tool_failed: no\nway"),
        ("north", "guidance at 'north': Look north"),
        ("many", "guidance at 'many': one / two"),
    ]
    title = "planning again (2 of 3): 'a' failed: tool_failed: no way; and 2 more"
    assert replan_title(actual, count=2, max_replans=3) == title


def test_new_node_starts_early_if_its_dependencies_have_completed() -> None:
    tools = {"look": ToolDeclaration("look", Effects.READ)}
    replan_context = ReplanContext(["a"], {"completed": ["c"], "failed": ["a"], "blocked": ["b"]})

    def starts_early(node_id: str, argument: str) -> bool:
        node = {"id": node_id, "tool": "look", "arguments": {"of": argument}}
        return can_start_early([node], tools, replan_context=replan_context)

    assert starts_early("n", "{{c.result}}")
    assert not starts_early("n", "{{b.result}}")
    # A node with an existing id waits for the complete plan.
    assert [starts_early(node_id, "{{c.result}}") for node_id in ("a", "b", "c")] == [False, False, False]


def test_too_deeply_nested_node_waits_for_the_complete_plan() -> None:
    tools = {"look": ToolDeclaration("look", Effects.READ)}

    def starts_early(depth: int) -> bool:
        argument = json.loads("[" * depth + "]" * depth)
        return can_start_early([{"id": "n", "tool": "look", "arguments": {"of": argument}}], tools)

    assert [starts_early(3), starts_early(78), starts_early(79), starts_early(95)] == [True, True, False, False]


def test_replan_context_survives_serialization() -> None:
    replan_context = ReplanContext(["a"], {"completed": ["c", "d#2"], "failed": ["a"]})
    assert REPLAN_CONTEXTS.decode(REPLAN_CONTEXTS.encode(replan_context)) == replan_context
    assert (replan_context.referable_ids, replan_context.not_referable_ids) == (["c", "d#2"], ["a"])
    assert REPLAN_CONTEXTS.decode(None) is None
    invalid_contexts: list[Any] = [3, {}, {"cause_ids": [], "ids_by_status": []}]
    for context in invalid_contexts:
        with pytest.raises(ValueError, match="invalid replan context"):
            REPLAN_CONTEXTS.decode(context)


def rename_ids(*nodes: dict[str, Any]) -> list[dict[str, Any]] | None:
    renaming = rename_reserved_ids(Document({"nodes": list(nodes)}))
    return None if renaming is None else renaming[0]["nodes"]


def test_renamed_id_is_replaced_in_references_and_dependencies_only() -> None:
    node = {
        "id": "b",
        "title": "{{read.result}}",
        "tool": "read",
        "depends_on": ["read", "c"],
        "arguments": {"read": ["{{read.result[0].read}} of {{reader.result}}"], "text": "read.result"},
        "for_each": "{{ read.result }}",
        "plan": {"nodes": [{"id": "read", "tool": "x"}, {"id": "y", "arguments": {"z": "{{read.result}}"}}]},
    }
    assert rename_ids({"id": "read", "tool": "x"}, node) == [
        {"id": "read_step", "tool": "x"},
        {
            **node,
            "depends_on": ["read_step", "c"],
            "arguments": {"read": ["{{read_step.result[0].read}} of {{reader.result}}"], "text": "read.result"},
            "for_each": "{{ read_step.result }}",
        },
    ]


def test_reserved_id_is_replaced_by_the_first_unused_id() -> None:
    actual = rename_ids({"id": "plan"}, {"id": "plan_step"}, {"id": "plan_step_2"})
    assert actual is not None
    assert [node["id"] for node in actual] == ["plan_step_3", "plan_step", "plan_step_2"]


@pytest.mark.parametrize(
    "node",
    [
        {"id": "b", "when": "size(read.result) > 0"},
        {"id": "read.result"},
        {"id": "b", "arguments": {"text": "\\{{read.result}}"}},
    ],
    ids=["condition", "longer id", "literal braces"],
)
def test_reserved_id_in_ambiguous_text_is_not_renamed(node: dict[str, Any]) -> None:
    assert rename_ids({"id": "read"}, node) is None
