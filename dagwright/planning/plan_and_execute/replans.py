"""Replanning: the nodes that cause a replan, the messages to the planner, and the nodes that the new plan abandons.

A replan starts when every node of the plan has ended. So two failures cause only one replan, and the planner also
receives the results of the nodes that were still running when a node failed.

Replay: the title and messages of a replanning call, and the IDs and order of the abandoned nodes, are part of a run's
history.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import NodeStatus, Record
from dagwright.core.text import cut_bytes, one_line
from dagwright.planning.model_calls.model_requests import user
from dagwright.planning.plan_and_execute.goal_spec import REPLAN, Goal
from dagwright.planning.plan_and_execute.replan_context import REPLACEABLE_STATUSES, ReplanContext
from dagwright.planning.plan_and_execute.step_messages import (
    Step,
    StepMessages,
    characters_per_step,
    step_messages,
    step_text,
)

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import RunState

REPLAN_TITLE = "planning again"
"""Start of the title of a replanning call; the number of the replan and its reason follow."""
_TITLE_BYTES = 300
_REASON_BYTES = 1_200
"""Maximum size of the reason that one node gives for a replan."""
_MAX_REASONS = 20
_DONE_STATUSES = (NodeStatus.COMPLETED, NodeStatus.SKIPPED)


@dataclass(frozen=True, slots=True)
class ReplanReason:
    """Reason for a replan.

    Args:
        node_id: ID of the node that causes the replan: it failed, it received guidance from a person, or it writes the
            answer and reports missing information.
        description: description of the failure, the guidance or the missing information.
    """

    node_id: str
    description: str


def is_replan(node: CompiledNode) -> bool:
    """Check whether a node is a planning call of a replan."""
    labels = node.arguments.get("labels")
    return isinstance(labels, Mapping) and labels.get("purpose") == REPLAN


def reasons_of(steps: Sequence[Step], *, handled_ids: Collection[str]) -> list[ReplanReason]:
    """Return the reasons for a replan, in plan order.

    Args:
        handled_ids: IDs of the nodes that have already caused a replan.
    """
    reasons = ((node.id, _reason_of(node, record)) for node, record in steps if node.id not in handled_ids)
    return [ReplanReason(node_id, description) for node_id, description in reasons if description is not None]


def reason_of_missing_information(node: CompiledNode, missing_texts: Sequence[str]) -> ReplanReason:
    """Return the reason for a replan if an answer reports missing information.

    Args:
        node: the node that writes the answer.
    """
    return ReplanReason(
        node.id, f"missing in the answer: {cut_bytes('; '.join(missing_texts), max_bytes=_REASON_BYTES)}"
    )


def _reason_of(node: CompiledNode, record: Record) -> str | None:
    if record.status is NodeStatus.FAILED and node.on_error == "replan":
        error = record.error
        reason_text = f": {error.code}: {error.message}" if error is not None else ""
        return f"{node.id!r} failed{cut_bytes(reason_text, max_bytes=_REASON_BYTES)}"
    if node.kind == "human" and node.arguments.get("type") == "GUIDANCE" and record.status is NodeStatus.COMPLETED:
        guidance = " / ".join(_guidance_in(record.result))
        return f"guidance at {node.id!r}: {cut_bytes(guidance, max_bytes=_REASON_BYTES)}" if guidance else None
    return None


def _guidance_in(result: Any) -> Iterator[str]:
    """Yield the guidance of people as text. Guidance with nodes is omitted, because the run adds the nodes."""
    if isinstance(result, list):
        for part in result:
            yield from _guidance_in(part)
    elif isinstance(result, Mapping) and not result.get("nodes"):
        text = result.get("text")
        if isinstance(text, str) and text.strip():
            yield text.strip()


def replan_title(reasons: Sequence[ReplanReason], *, count: int, max_replans: int) -> str:
    """Return the title of a replanning call, with the number of the replan and its reason.

    Args:
        count: number of replans, including this one.
    """
    omitted_note = f"; and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    description = one_line(reasons[0].description)
    title = cut_bytes(f"{REPLAN_TITLE} ({count} of {max_replans}): {description}", max_bytes=_TITLE_BYTES)
    return title + omitted_note


def replan_context_of(state: "RunState", steps: Sequence[Step], reasons: Sequence[ReplanReason]) -> ReplanContext:
    """Return the state of a run for the parser of the next plan."""
    ids_by_status: dict[str, list[str]] = {}
    for node, record in steps:
        number = state.number_of(node.id)
        assert number is not None
        ids_by_status.setdefault(record.status.value, []).extend(dict.fromkeys((state.reference_id(number), node.id)))
    return ReplanContext([reason.node_id for reason in reasons], ids_by_status)


def replan_messages(goal: Goal, steps: Sequence[Step], reasons: Sequence[ReplanReason]) -> StepMessages:
    """Return the messages of a replanning call: the outcome of each node, and the reasons for the replan.

    Results of completed nodes are passed by reference. The outcomes of all other nodes are copied into the messages: if
    a new node replaces such a node, a reference returns the result of the new node.
    """
    completed_steps = [step for step in steps if step[1].status is NodeStatus.COMPLETED]
    limit = characters_per_step(steps)
    other_messages = [
        user(step_text(node, record, limit=limit))
        for node, record in steps
        if record.status is not NodeStatus.COMPLETED
    ]
    completed_messages = step_messages(completed_steps, first_index=0)
    reason_lines = [f"- {reason.description}" for reason in reasons[:_MAX_REASONS]]
    omitted_note = [f"- and {len(reasons) - _MAX_REASONS} more"] if len(reasons) > _MAX_REASONS else []
    reasons_message = user(
        "\n".join([goal.replan_prompt, "", "Reasons for the new plan:", *reason_lines, *omitted_note])
    )
    messages = [*completed_messages.messages, *other_messages, reasons_message]
    return StepMessages(messages, completed_messages.bindings, completed_messages.cuts)


def unreachable_ids(state: "RunState", steps: Sequence[Step], replaced_ids: Collection[str]) -> tuple[str, ...]:
    """Return the IDs of the nodes that can no longer run after other nodes have replaced some nodes of the plan.

    A blocked node can still run if enough of its dependencies are replaced or can run.

    Args:
        replaced_ids: IDs of the nodes that are replaced.
    """
    steps_to_check = [
        (node, record) for node, record in steps if node.id not in replaced_ids and node.on_error != "skip"
    ]
    unreachable_numbers = {
        state.number_of(node.id) for node, record in steps_to_check if record.status is NodeStatus.FAILED
    }
    blocked_nodes = {
        state.number_of(node.id): node for node, record in steps_to_check if record.status is NodeStatus.BLOCKED
    }
    dependents: dict[int | None, list[int | None]] = {}
    for number, node in blocked_nodes.items():
        for dependency in node.dependencies:
            dependents.setdefault(dependency, []).append(number)
    # Check a node again only when one of its dependencies has become unreachable: people may have added chains of
    # thousands of nodes.
    numbers = [*blocked_nodes]
    while numbers:
        number = numbers.pop()
        if number not in unreachable_numbers and not _can_start(state, blocked_nodes[number], unreachable_numbers):
            unreachable_numbers.add(number)
            numbers += dependents.get(number, ())
    return tuple(node.id for node, _ in steps_to_check if state.number_of(node.id) in unreachable_numbers)


def _can_start(state: "RunState", node: CompiledNode, unreachable_numbers: Collection[int | None]) -> bool:
    """Check whether enough dependencies of a blocked node are done, are replaced, or can still run."""
    done_or_replaceable = (*_DONE_STATUSES, *REPLACEABLE_STATUSES)
    reachable_count = sum(
        number not in unreachable_numbers and state.records[number].status in done_or_replaceable
        for number in node.dependencies
    )
    kind, required_count = node.join
    return reachable_count >= (len(node.dependencies) if kind == "all" else required_count or 1)
