"""Rounds in the documents and the graph of a run: progress, sub-goals, and the results of each round."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pydantic_core

from dagwright.core.expressions.stored_values import is_inline_value
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import NodeStatus, RunStatus
from dagwright.core.model.worker_results import SUB_GOAL_PREFIX, worker_result_of
from dagwright.core.text import cut_bytes
from dagwright.features.plan_extension.extender import GoalUnreachable
from dagwright.planning.model_calls.response_summary import summarize_response
from dagwright.planning.rounds.rounds_extender import Rounds, stop_reason
from dagwright.planning.rounds.rounds_nodes import has_started_answer
from dagwright.planning.rounds.rounds_spec import ANSWER, INTENTION, PLAN, RoundsSpec, is_reserved
from dagwright.planning.rounds.rounds_state import RoundsState, SubGoalProgress
from dagwright.planning.rounds.state_text import shorten_oldest
from dagwright.planning.rounds.sub_goals import INPUTS, SUB_GOALS

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import RunState
    from dagwright.features.run_scheduler import RunScheduler


def group_by_node_id(scheduler: "RunScheduler") -> Mapping[str, str]:
    """Return the group of each node of a run that answers a question in rounds; empty for other runs.

    Returns:
        id of a node -> group such as `round 1`; the intention node and the answer node belong to no round.
    """
    extender = scheduler.features.extension.extender
    if not isinstance(extender, Rounds):
        return {}
    rounds_state = RoundsState(scheduler.state, extender.spec)
    try:
        round_by_node = {call.node.id: call.round for call in rounds_state.calls}
        round_by_node |= {node.id: number for number, node, _ in rounds_state.attempts}
    except GoalUnreachable:
        # The run has ended because the result of a planner call is not an answer.
        return {}
    return {node_id: f"round {number}" for node_id, number in round_by_node.items()}


def drawn_dependencies(scheduler: "RunScheduler", node: CompiledNode) -> Sequence[int]:
    """Return the numbers of the nodes from which the graph of a run in rounds draws an edge to `node`.

    A sub-goal has edges from the nodes whose slots it receives. A planner call has an edge from the previous planner
    call.
    """
    nodes = scheduler.plan.nodes
    dependencies = scheduler.state.visible_dependencies(node)
    if node.is_worker:
        return [number for number in dependencies if nodes[number].is_worker or not is_reserved(nodes[number].id)]
    if node.id.partition("#")[0] == PLAN:
        return [number for number in dependencies if not nodes[number].is_worker]
    return dependencies


MAX_SUB_GOALS_BYTES = 192 * 1024
"""Limit for all `sub_goals`. Over the limit, the fields of the oldest sub-goals are cut to 200 bytes each."""
MAX_ROUNDS_BYTES = 96 * 1024
"""Limit for all `rounds`. Over the limit, the oldest rounds have the number `omitted_results` and empty `results`."""
MAX_RESULT_BYTES = 8 * 1024
"""Limit for the `result` of each sub-goal. With many sub-goals, the limit is a share of `MAX_RESULTS_BYTES`."""
MAX_RESULTS_BYTES = 128 * 1024
"""Limit for the `result` of all sub-goals."""
MAX_OUTPUT_BYTES = 2 * 1024
"""Limit for each of `completed_outputs`, and for the `outputs` of each result.

With many outputs, the limit is an equal share of `MAX_OUTPUTS_BYTES`.
"""
MAX_OUTPUTS_BYTES = 48 * 1024
"""Limit for all `completed_outputs`, and for the `outputs` of all `results`."""
MAX_DESCRIPTION_BYTES = 8 * 1024
"""Limit for the `description` of a sub-goal."""
MAX_INPUTS_BYTES = 1024
"""Limit for the `params` of a sub-goal, and for its `inputs`."""
MAX_ERROR_BYTES = 1_000
"""Limit for each of `error`, `message` and `plan_problems`."""
MAX_MESSAGES = 60
"""Maximum number of `messages` in addition to the question. The oldest messages are omitted."""
MAX_MESSAGE_BYTES = 300
"""Limit for each of the `messages`."""
_PREVIEW_CHARACTERS = 200

RoundsPhase = Literal["idle", "planning", "executing", "joining", "done", "failed"]
"""Phase of a question; `joining` is the time between the end of all sub-goals and the next call of the planner."""
ShortenValue = Callable[[Any, str], Any]
"""Function (value, its reference) -> the value, shortened for a document."""


@dataclass(frozen=True, slots=True)
class _SizeLimits:
    """Size limits in bytes for the parts of a sub-goal.

    Args:
        inputs: limit for the JSON of `params`, and for the JSON of `inputs`.
        result: limit for the JSON of `result`.
    """

    description: int
    inputs: int
    result: int
    error: int


_BRIEF_LIMITS = _SizeLimits(200, 200, 200, 200)
"""Limits for the short form, which is used if all sub-goals together are too large."""


def rounds_document(scheduler: "RunScheduler", shorten_value: ShortenValue) -> dict[str, Any] | None:
    """Return the progress of a run that answers a question in rounds; `None` for other runs.

    Args:
        shorten_value: shortens a large value.
    """
    extender = scheduler.features.extension.extender
    if not isinstance(extender, Rounds):
        return None
    rounds_state = RoundsState(scheduler.state, extender.spec)
    try:
        return _document(rounds_state, scheduler, extender.spec, shorten_value)
    except GoalUnreachable as unreachable:
        # The run has ended because the result of a planner call is not an answer.
        return {"phase": "failed", "question": extender.spec.question, "planner_reasoning": unreachable.error.message}


def _document(
    rounds_state: RoundsState, scheduler: "RunScheduler", spec: RoundsSpec, shorten_value: ShortenValue
) -> dict[str, Any]:
    last_call = rounds_state.last_call
    output = scheduler.output()[0] if scheduler.is_finished and scheduler.state.error is None else None
    entries = [_round_document(rounds_state, number, shorten_value) for number in range(1, last_call.round + 1)]
    intention, final_response = _intention(scheduler.state), shorten_value(output, "output")
    return {
        "phase": _phase(rounds_state, scheduler),
        "round": last_call.round,
        "max_rounds": spec.max_rounds,
        "question": spec.question,
        "conversation_history": [turn.to_json() for turn in spec.turns],
        "intention": intention,
        "sub_goals": _sub_goal_documents(rounds_state, shorten_value),
        "completed_outputs": _completed_outputs(rounds_state, shorten_value),
        "planner_reasoning": next((call.reasoning for call in reversed(rounds_state.calls) if call.reasoning), None),
        "synthesis_inputs": _synthesis_inputs(rounds_state, scheduler),
        "final_response": final_response,
        "messages": _messages(spec.question, intention, entries, final_response),
        "rounds": shorten_oldest([(entry, _brief_round(entry)) for entry in entries], max_bytes=MAX_ROUNDS_BYTES),
    }


def _phase(rounds_state: RoundsState, scheduler: "RunScheduler") -> RoundsPhase:
    if scheduler.is_finished:
        is_success = scheduler.status() in (RunStatus.COMPLETED, RunStatus.COMPLETED_WITH_FAILURES)
        return "done" if is_success else "failed"
    if has_started_answer(scheduler.state):
        return "done"
    first_record, last_call = scheduler.records[0], rounds_state.last_call
    if first_record.started_at is None and not first_record.status.is_final:
        return "idle"
    if last_call.action == "continue":
        return "joining" if rounds_state.have_all_nodes_ended else "executing"
    is_called = last_call.record.status is NodeStatus.RUNNING or last_call.record.status.is_final
    return "planning" if is_called or last_call.round == 1 or last_call.is_repair else "joining"


def _intention(state: "RunState") -> str | None:
    number = state.number_of(state.newest_id(INTENTION))
    record = state.records[number] if number is not None else None
    if record is None or record.status is not NodeStatus.COMPLETED:
        return None
    try:
        text = summarize_response(record.result).text
    except ValueError:
        return None
    return text if isinstance(text, str) else text.shape.preview if text.shape is not None else None


def _sub_goal_documents(rounds_state: RoundsState, shorten_value: ShortenValue) -> Sequence[dict[str, Any]]:
    max_bytes = min(MAX_RESULT_BYTES, MAX_RESULTS_BYTES // max(1, len(rounds_state.sub_goals)))
    full_limits = _SizeLimits(MAX_DESCRIPTION_BYTES, MAX_INPUTS_BYTES, max_bytes, MAX_ERROR_BYTES)
    documents = [
        (
            _sub_goal_document(progress, shorten_value, full_limits),
            _sub_goal_document(progress, shorten_value, _BRIEF_LIMITS),
        )
        for progress in rounds_state.sub_goals.values()
    ]
    return shorten_oldest(documents, max_bytes=MAX_SUB_GOALS_BYTES)


def _sub_goal_document(progress: SubGoalProgress, shorten_value: ShortenValue, limits: _SizeLimits) -> dict[str, Any]:
    node_id, sub_goal = progress.node.id, progress.sub_goal
    result = progress.record.result if progress.is_done else None
    return {
        **SUB_GOALS.encode(sub_goal),
        "description": cut_bytes(sub_goal.description, max_bytes=limits.description),
        "params": _limit_value(dict(sub_goal.params), node_id, shorten_value, max_bytes=limits.inputs),
        "inputs": _limit_value(INPUTS.encode(sub_goal.inputs), node_id, shorten_value, max_bytes=limits.inputs),
        "status": progress.status,
        "result": _limit_value(result, node_id, shorten_value, max_bytes=limits.result),
        "error": progress.error and cut_bytes(progress.error, max_bytes=limits.error),
    }


def _limit_value(value: Any, node_id: str, shorten_value: ShortenValue, *, max_bytes: int) -> Any:
    """Return a value of a node, or a reference to the node if the JSON of the value is longer than `max_bytes`."""
    compact_value = shorten_value(value, f"node:{node_id}")
    if len(pydantic_core.to_json(compact_value)) <= max_bytes:
        return compact_value
    if not isinstance(value, Mapping):
        # A stored value, which `shorten_value` has already shortened.
        return compact_value
    size = len(pydantic_core.to_json(value)) if is_inline_value(value) else None
    return {"ref": f"node:{node_id}", "bytes": size, "preview": _preview(compact_value)[:max_bytes]}


def _brief_round(document: Mapping[str, Any]) -> dict[str, Any]:
    reasoning = document["reasoning"] and cut_bytes(document["reasoning"], max_bytes=_BRIEF_LIMITS.description)
    return {**document, "reasoning": reasoning, "results": [], "omitted_results": len(document["results"])}


def _completed_outputs(rounds_state: RoundsState, shorten_value: ShortenValue) -> dict[str, Any]:
    """Return the slots of each completed sub-goal by its id. Other sub-goals and the answer may use these slots."""
    completed_goals = [progress for progress in rounds_state.sub_goals.values() if progress.is_done]
    max_bytes = min(MAX_OUTPUT_BYTES, MAX_OUTPUTS_BYTES // max(1, len(completed_goals)))
    return {
        str(progress.sub_goal.id): _limit_value(
            progress.record.result, progress.node.id, shorten_value, max_bytes=max_bytes
        )
        for progress in completed_goals
    }


def _messages(
    question: str, intention: str | None, rounds: Sequence[Mapping[str, Any]], response: Any
) -> list[dict[str, Any]]:
    """Return the shortened messages of the person, the models and the worker tools, oldest first."""
    entries = [_message("user", "question", question)]
    if intention is not None:
        entries.append(_message("assistant", INTENTION, intention))
    for round_ in rounds:
        if round_["reasoning"]:
            entries.append(_message("assistant", PLAN, round_["reasoning"]))
        for result in round_["results"]:
            text = result["message"] or result["error"] or result["status"]
            entries.append(_message("tool", f"{SUB_GOAL_PREFIX}{result['sub_goal_id']}", text))
    if response is not None:
        entries.append(_message("assistant", ANSWER, response if isinstance(response, str) else _preview(response)))
    return [*entries[:1], *entries[1:][-MAX_MESSAGES:]]


def _message(role: str, name: str, content: str) -> dict[str, Any]:
    return {"role": role, "name": name, "content": cut_bytes(content, max_bytes=MAX_MESSAGE_BYTES)}


def _preview(value: Any) -> str:
    return pydantic_core.to_json(value).decode(errors="replace")[:_PREVIEW_CHARACTERS]


def _synthesis_inputs(rounds_state: RoundsState, scheduler: "RunScheduler") -> dict[str, Any] | None:
    if rounds_state.last_call.action == "done":
        return dict(rounds_state.last_call.synthesis_inputs)
    is_stopped = has_started_answer(scheduler.state) and stop_reason(rounds_state) is not None
    return INPUTS.encode(rounds_state.deliverables()) if is_stopped else None


def _round_document(rounds_state: RoundsState, number: int, shorten_value: ShortenValue) -> dict[str, Any]:
    calls = rounds_state.calls_of(number)[::-1]
    # Until an answer is accepted, show the problems of the last answer, also while the planner writes the next one.
    shown_call = next((call for call in calls if call.action is not None), None)
    shown_call = shown_call or next((call for call in calls if call.parsed_answer is not None), calls[0])
    problems = (
        {"plan_problems": cut_bytes(shown_call.problems_text, max_bytes=MAX_ERROR_BYTES)}
        if shown_call.problems_text
        else {}
    )
    return {
        "round": number,
        "reasoning": shown_call.reasoning or None,
        "action": shown_call.action,
        "sub_goals": [sub_goal.id for sub_goal in shown_call.sub_goals],
        "results": [*_results_of(rounds_state, number, shorten_value)],
        **problems,
    }


def _results_of(rounds_state: RoundsState, number: int, shorten_value: ShortenValue) -> Iterator[dict[str, Any]]:
    """Yield the results of a round, one for each attempt of a sub-goal, including attempts that were superseded.

    An attempt that was added in an earlier round, but could only start or continue in this round, belongs to this
    round.
    """
    max_bytes = min(MAX_OUTPUT_BYTES, MAX_OUTPUTS_BYTES // max(1, len(rounds_state.attempts)))
    for attempt_round, node, record in rounds_state.attempts:
        result = worker_result_of(node.id, record) if attempt_round == number else None
        if result is not None:
            yield {
                "sub_goal_id": result.sub_goal_id,
                "status": result.status,
                "outputs": _limit_value(result.outputs, node.id, shorten_value, max_bytes=max_bytes),
                "error": result.error and cut_bytes(result.error, max_bytes=MAX_ERROR_BYTES),
                "message": result.message and cut_bytes(result.message, max_bytes=MAX_ERROR_BYTES),
            }
