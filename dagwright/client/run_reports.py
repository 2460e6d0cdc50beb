"""Reports about a run: explanations of its state, lineage of results, and previews of forks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dagwright.core.errors import Note, Problem, note_from_json, problem_from_error
from dagwright.core.model.states import RunStatus
from dagwright.features.explain.reasons import Reason
from dagwright.history.queues import WAITING_NOTE_CODES

if TYPE_CHECKING:
    from dagwright.client.forks import ForkDraft
    from dagwright.history.run_explainer import RunExplanation


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a run or a node is in its current state; `str()` returns the message.

    Args:
        node_id: ID of the node, with the path to its sub-plan; `None` for the whole run.
        message: one or a few sentences.
        chain: reasons of the node and of all nodes that it depends on, down to the root causes.
        omitted: number of reasons that were omitted because a report lists a limited number of reasons.
        error: why the run failed.
    """

    run_id: str
    status: RunStatus
    node_id: str | None
    message: str
    chain: Sequence[Reason] = ()
    omitted: int = 0
    error: Problem | None = None
    notes: Sequence[Note] = ()

    def __str__(self) -> str:
        return self.message


def explanation_of(explanation: "RunExplanation") -> Explanation:
    """Return the public form of an explanation."""
    document = explanation.to_json()
    message = "; ".join([document["message"], *_wait_texts(explanation.notes, document["message"])])
    return Explanation(
        run_id=document["run_id"],
        status=RunStatus(document["status"]),
        node_id=document["node_id"],
        message=message,
        chain=tuple(explanation.chain.reasons),
        omitted=explanation.chain.omitted,
        error=problem_from_error(document["error"]),
        notes=tuple(note_from_json(note) for note in explanation.notes),
    )


def _wait_texts(notes: Sequence[Mapping[str, Any]], message: str) -> list[str]:
    """Return the notes on queues without workers and on paused calls, except texts that are in the message already."""
    texts = [str(note["message"]) for note in notes if note["code"] in WAITING_NOTE_CODES]
    return [_without_repeated_reason(text, message) for text in texts if text not in message]


def _without_repeated_reason(text: str, message: str) -> str:
    """Return only the advice of a note `TOOL: REASON; ADVICE` if the message contains the reason."""
    head, _, advice = text.partition("; ")
    reason = head.partition(": ")[2]
    return advice if reason and advice and reason in message else text


@dataclass(frozen=True, slots=True)
class Lineage:
    """Sources of the result of a node.

    Args:
        inputs: IDs of the nodes whose results the node reads or waits for.
        arguments: arguments of the node's call, as far as they are known; secrets are masked.
        cached: for a result from the cache, the run and the node that produced the result.
        reused: for a result that a fork reuses, the run and the node that produced the result.
        answers: answers of people, each with `request_id`, `answer`, `by`, `at` and `note`.
        overrides: manual commands to the node, such as `retry` or `set_result`.
        files: paths that its tool has read.
        urls: addresses that its tool has read.
        model_calls: for an agent, IDs of its model calls.
        tool_calls: for an agent, `{"node_id", "tool", "status"}` of each call by the model.
        omitted: number of files, addresses and calls that were omitted because a report lists a limited number.
    """

    node_id: str
    inputs: Sequence[str]
    tool: str | None = None
    tool_version: str | None = None
    effects: str | None = None
    agent: str | None = None
    arguments: Any = None
    attempts: int = 0
    cached: Mapping[str, Any] | None = None
    reused: Mapping[str, Any] | None = None
    answers: Sequence[Mapping[str, Any]] = ()
    overrides: Sequence[Mapping[str, Any]] = ()
    files: Sequence[str] = ()
    urls: Sequence[str] = ()
    model_calls: Sequence[str] = ()
    tool_calls: Sequence[Mapping[str, str]] = ()
    omitted: int = 0


def lineage_of(document: Mapping[str, Any]) -> Lineage:
    """Return the lineage of a node from its document."""
    lineage = document["lineage"]
    list_names = ("answers", "files", "urls", "model_calls", "tool_calls")
    lists = {name: tuple(lineage.get(name, ())) for name in list_names}
    return Lineage(
        node_id=document["node_id"],
        inputs=tuple(lineage["inputs"]),
        tool=document["tool"],
        tool_version=lineage["tool_version"],
        effects=lineage["effects"],
        agent=lineage.get("agent"),
        arguments=document["arguments"],
        attempts=lineage["attempts"],
        cached=lineage.get("cached"),
        reused=lineage.get("reused"),
        overrides=tuple(lineage.get("overrides", ())),
        omitted=lineage.get("omitted", 0),
        **lists,
    )


@dataclass(frozen=True, slots=True)
class ForkPreview:
    """Predicted effect of a fork that has not been started.

    Args:
        fork_run_id: ID of the fork; the same fork always has the same ID.
        reused: IDs of the nodes whose results the fork reuses.
        executed: ID of a node that the fork executes immediately -> reason.
        reused_if_unchanged: nodes that are reused if their inputs turn out unchanged.
        decided_later: nodes that cannot be predicted before other nodes have run.
        planned_again: nodes of the original run that are not in the fork because a model plans them again.
        effects: ID of a node that the fork executes, or may execute -> effects of its tool.
    """

    fork_run_id: str
    reused: Sequence[str]
    executed: Mapping[str, str]
    reused_if_unchanged: Sequence[str] = ()
    decided_later: Sequence[str] = ()
    planned_again: Sequence[str] = ()
    effects: Mapping[str, str] = field(default_factory=dict)


def preview_of(draft: "ForkDraft") -> ForkPreview:
    """Return the public form of a fork that has not been started."""
    prediction = draft.prediction
    return ForkPreview(
        fork_run_id=draft.run_id,
        reused=tuple(prediction.reused),
        executed=dict(prediction.executed),
        reused_if_unchanged=tuple(prediction.reused_if_unchanged),
        decided_later=tuple(prediction.decided_later),
        planned_again=tuple(draft.planned_again),
        effects=dict(draft.effects),
    )
