"""Text output about the result of a run that has ended or is still open."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dagwright.core.model.states import NodeStatus
from dagwright.core.model.times import format_elapsed_time
from dagwright.core.text import join_first
from dagwright.features.compensation.compensation import compensation_counts, precautionary_count
from dagwright.history.document_hydration import output_loss_reason
from dagwright.history.offloaded_regions import REGION_UNREADABLE
from dagwright.interfaces.cli.node_text import displayed_counts, has_default_result, node_text, usage_lines
from dagwright.interfaces.cli.output import Output, indented_value_text, one_line, terminal_text
from dagwright.interfaces.cli.plan_input import value_as_text
from dagwright.interfaces.cli.round_text import final_round_lines
from dagwright.planning.plan_and_execute.goal_spec import (
    APPROVE,
    LOW_CONFIDENCE,
    PLAN,
    PLAN_INVALID,
    READ,
    is_reserved,
    role_of,
)
from dagwright.planning.plan_and_execute.replans import REPLAN_TITLE
from dagwright.planning.rounds.rounds_spec import MAX_ROUNDS_REACHED, ROUNDS_LIMIT
from dagwright.protocol.documents import OUTPUT_OMITTED
from dagwright.protocol.failures import NODE_FAILED

if TYPE_CHECKING:
    from dagwright.history.run_view import RunView

Write = Callable[[str], None]
OUTPUT_CHARACTERS = 4_000
"""Maximum length of the output shown after a run; `dagwright result` shows the complete output."""
FAILURES_SHOWN = 20
RESULTS_SHOWN = 40
"""Maximum number of listed results of intents, and of listed lookups."""
REPAIRS_SHOWN = 5
"""Maximum number of repairs that are listed."""

_INTENT_PREFIX = "@result_"
"""Prefix of the IDs of nodes that were created for intents."""

_DONE_STATES = frozenset({NodeStatus.COMPLETED, NodeStatus.SUPERSEDED})
"""If all nodes have these states, the last node had ended before the run was cancelled."""
_MISSING_PART_CODES = frozenset({OUTPUT_OMITTED, REGION_UNREADABLE})
"""Codes of the notes about missing parts of the output."""


def print_end(view: "RunView", document: Mapping[str, Any], output: Output) -> None:
    """Write how a run ended, its failures and its output."""
    output.print(summary_line(view, document))
    _print_failures(document, output)
    _print_rounds_and_output(document, output)
    _print_missing_parts(document, output)
    for line in usage_lines(document):
        output.print(line)


def print_answer(view: "RunView", document: Mapping[str, Any], output: Output) -> None:
    """Write the answer of a run of `ask`, then how the run ended."""
    _print_rounds_and_output(document, output, write=output.answer)
    print_answer_end(view, document, output)


def print_answer_end(view: "RunView", document: Mapping[str, Any], output: Output) -> None:
    """Write how a run of `ask` ended. Its answer has been written already."""
    output.print(summary_line(view, document))
    _print_failures(document, output)
    for line in replan_lines(document):
        output.print(line)
    for line in repair_lines(document):
        output.print(line)
    _print_missing_parts(document, output)
    for line in usage_lines(document):
        output.print(line)


def _print_rounds_and_output(document: Mapping[str, Any], output: Output, *, write: Write | None = None) -> None:
    """Write the results of the rounds, if there are any, and the output of a run.

    A run of intents has no answer: the explanation of the model and the results are written instead.

    Args:
        write: writes an output that is a text; `output.print` by default.
    """
    round_lines = [*final_round_lines(document)]
    for line in round_lines:
        output.print(line)
    if round_lines and output.is_terminal:
        output.print("")
    intent_lines = [*intent_result_lines(document)]
    for line in intent_lines:
        output.print(line)
    if not intent_lines:
        for line in _lookup_lines(document):
            output.print(line)
        _print_output(document, output, limit=OUTPUT_CHARACTERS, write=write)


def intent_result_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the model's explanation of its intents, and their results; nothing for runs without intents."""
    intents_result: Mapping[str, Any] = {}
    for node_id, node in document["nodes"].items():
        result = node["result"]
        if role_of(node_id) in (READ, APPROVE) and isinstance(result, Mapping) and "explanation" in result:
            intents_result = result
    if not intents_result:
        return
    confidence = intents_result.get("confidence")
    explanation = one_line(str(intents_result["explanation"]), limit=1_000)
    certainty = f"{confidence:.0%} sure" if isinstance(confidence, int | float) else "not sure"
    yield f"{explanation or 'no explanation'} ({certainty})"
    yield from found_entity_lines(document.get("lookups", []))
    intent_nodes = [(name, node) for name, node in document["nodes"].items() if not is_reserved(name)]
    yield from _result_lines([(name, node) for name, node in intent_nodes if node["status"] == "completed"], document)


def _result_lines(results: Sequence[tuple[str, Mapping[str, Any]]], document: Mapping[str, Any]) -> Iterator[str]:
    for name, node in results[:RESULTS_SHOWN]:
        yield f"{one_line(name)} {one_line(str(node['tool']))}: {one_line(value_as_text(node['result']), limit=200)}"
    if (omitted := len(results) - RESULTS_SHOWN) > 0:
        yield f"and {omitted:,} more; complete list: dagwright result {document['run_id']}"


def facts_of_entity(entity: Mapping[str, Any]) -> list[str]:
    """Return the facts that distinguish an entity from others with the same name; the ID is last."""
    facts = [value for key, value in entity.items() if key not in ("id", "name", "kind")]
    return [fact for fact in (entity.get("kind"), *facts, entity.get("id")) if isinstance(fact, str) and fact]


def found_entity_lines(lookups: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the entity that each lookup found, and why.

    Args:
        lookups: as in the document of a run.
    """
    for lookup in lookups[:RESULTS_SHOWN]:
        entity = lookup["entity"]
        facts = ", ".join(facts_of_entity(entity))
        yield one_line(f"{lookup['search_text']!r} is {entity.get('name')} ({facts}): {lookup.get('reason')}")
    if (omitted := len(lookups) - RESULTS_SHOWN) > 0:
        yield f"and {omitted:,} more lookups"


def _lookup_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lookups, and the results that the output omits because other intents use them."""
    yield from found_entity_lines(document.get("lookups", []))
    output = document["output"]
    if not isinstance(output, Mapping) or not all(str(name).startswith(_INTENT_PREFIX) for name in output):
        return
    nodes = document["nodes"].items()
    results = [(name, node) for name, node in nodes if name.startswith(_INTENT_PREFIX) and name not in output]
    yield from _result_lines([(name, node) for name, node in results if node["status"] == "completed"], document)


def replan_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each replan of a run, with the reason."""
    for node_id, node in document["nodes"].items():
        if role_of(node_id) == PLAN and (node["title"] or "").startswith(REPLAN_TITLE):
            state = "" if node["status"] == "completed" else f" ({node['status']})"
            yield f"{one_line(node_id)}: {one_line(node['title'], limit=400)}{state}"


def repair_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the repairs of the plan that a model wrote, and the parts of the plan that were ignored."""
    plan_node_id, notes = "", list[Any]()
    for node_id, node in document["nodes"].items():
        result = node["result"]
        if role_of(node_id) in (READ, APPROVE) and isinstance(result, Mapping) and result.get("valid") is True:
            plan_node_id, notes = node_id, result.get("notes") or []
    lines = [*dict.fromkeys(map(_repair_line, notes))]
    yield from lines[:REPAIRS_SHOWN]
    if (omitted := len(lines) - REPAIRS_SHOWN) > 0:
        yield f"and {omitted:,} more; complete list: dagwright node {document['run_id']} {plan_node_id}"


def _repair_line(note: Mapping[str, Any]) -> str:
    node_suffix = f" ({one_line(note['node_id'])})" if note["node_id"] else ""
    return f"{one_line(note['message'], limit=300)}{node_suffix}"


def print_result(view: "RunView", document: Mapping[str, Any], output: Output) -> None:
    """Write the complete output of a run."""
    if not view.is_closed:
        output.log(f"the run is still {view.status}; this is its output so far")
    if document["status"] != "completed":
        output.print(summary_line(view, document))
        _print_failures(document, output)
    _print_output(document, output, limit=None)
    _print_missing_parts(document, output)
    for line in usage_lines(document):
        # Usage goes to stderr: stdout may be read by a program.
        output.log(line)


def _print_missing_parts(document: Mapping[str, Any], output: Output) -> None:
    for note in document["notes"]:
        if note["code"] in _MISSING_PART_CODES:
            node_prefix = f"{note['node_id']}: " if note.get("node_id") else ""
            output.print(f"note: {one_line(node_prefix + note['message'], limit=1_000)}")
    if (loss_reason := output_loss_reason(document["notes"])) is not None:
        output.log(f"error: the output is not loaded: {one_line(loss_reason.removeprefix('output: '), limit=1_000)}")


def summary_line(view: "RunView", document: Mapping[str, Any]) -> str:
    """Return the state of a run on one line, with its duration and the number of nodes per state."""
    counts = displayed_counts(view.scheduler) if view.scheduler else Counter[NodeStatus]()
    compensated_counts = compensation_counts(view.scheduler.state) if view.scheduler else Counter[NodeStatus]()
    duration = timing_note = ""
    if view.started_at is not None and view.ended_at is not None:
        duration = f" in {format_elapsed_time(view.ended_at - view.started_at)}"
    title = f" ({one_line(document['title'], limit=80)})" if document["title"] else ""
    state = document["status"].replace("_", " ")
    if (
        document["status"] == "cancelled"
        and not compensated_counts
        and {status for status, count in counts.items() if count} <= _DONE_STATES
    ):
        # All nodes had completed before the cancellation arrived.
        timing_note = ", after all nodes had completed"
    uncertain_count = precautionary_count(view.scheduler.state) if view.scheduler and compensated_counts else 0
    uncertain_text = f" ({uncertain_count:,} for failed calls that may have had an effect)" if uncertain_count else ""
    groups = (
        ("nodes", _counts_text(counts - compensated_counts)),
        ("compensation", f"{_counts_text(compensated_counts)}{uncertain_text}"),
    )
    suffix = "".join(f"; {name}: {counts_text}" for name, counts_text in groups if counts_text)
    return f"{view.run_id}{title}: {state}{duration}{timing_note}{suffix}"


def _counts_text(counts: Mapping[NodeStatus, int]) -> str:
    return ", ".join(f"{count:,} {status.value}" for status, count in counts.items())


def _print_failures(document: Mapping[str, Any], output: Output) -> None:
    for line in failure_lines(document):
        output.print(line)


def failure_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the error of a run, its failed nodes with their errors, and the nodes that they block."""
    failed_nodes = [(name, node) for name, node in document["nodes"].items() if node["status"] == "failed"]
    if not any(_is_same_error(document["error"], node["error"]) for _, node in failed_nodes[:FAILURES_SHOWN]):
        yield from _run_error_lines(document)
    for name, node in failed_nodes[:FAILURES_SHOWN]:
        yield f"failed: {one_line(name)}: {one_line(node_text(node), limit=1_000)}"
    if len(failed_nodes) > FAILURES_SHOWN:
        yield f"and {len(failed_nodes) - FAILURES_SHOWN:,} more failures"
    defaulted_nodes = [(name, node) for name, node in document["nodes"].items() if has_default_result(node)]
    for name, node in defaulted_nodes[:FAILURES_SHOWN]:
        yield f"{one_line(name)}: {one_line(node_text(node), limit=1_000)}"
    if len(defaulted_nodes) > FAILURES_SHOWN:
        yield f"and {len(defaulted_nodes) - FAILURES_SHOWN:,} more failures that were replaced with a default"
    blocked_names = [one_line(name) for name, node in document["nodes"].items() if node["status"] == "blocked"]
    if blocked_names:
        yield f"blocked by failures: {join_first(blocked_names, FAILURES_SHOWN)}"


def _is_same_error(run_error: Mapping[str, Any] | None, node_error: Mapping[str, Any] | None) -> bool:
    """Return whether a run failed with the error of a node."""
    if not run_error or not node_error:
        return False
    return all(run_error.get(key) == node_error.get(key) for key in ("code", "message"))


def print_run_error(document: Mapping[str, Any], output: Output) -> None:
    """Write the error of a run, unless the error only reports failed nodes."""
    for line in _run_error_lines(document):
        output.print(line)


def _run_error_lines(document: Mapping[str, Any]) -> Iterator[str]:
    error = document["error"]
    if not error or error.get("code") == NODE_FAILED:
        # The failed nodes are listed with their errors.
        return
    # The list `errors` contains everything that is in the error of the run.
    problems = error.get("errors") or [error]
    for problem in problems[:FAILURES_SHOWN]:
        yield _problem_line(problem)
    if len(problems) > FAILURES_SHOWN:
        yield f"and {len(problems) - FAILURES_SHOWN:,} more errors"
    if error.get("code") == PLAN_INVALID:
        commands = _commands_of_last_plan(document, PLAN, READ)
        yield f"the last response of the model, and its errors: {commands}"
    if error.get("code") == LOW_CONFIDENCE:
        yield f"the intents: {_commands_of_last_plan(document, READ)}"
    if error.get("code") == MAX_ROUNDS_REACHED:
        yield from _rounds_hint(document)


def _rounds_hint(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the option that allows more rounds, if the limit can be raised."""
    max_rounds = (document.get("rounds") or {}).get("max_rounds")
    if isinstance(max_rounds, int) and max_rounds < ROUNDS_LIMIT:
        yield f"more rounds: --max-rounds N, at most {ROUNDS_LIMIT}"


def _commands_of_last_plan(document: Mapping[str, Any], *roles: str) -> str:
    number = max(
        (node_id.partition("#")[2] for node_id in document["nodes"] if role_of(node_id) == PLAN),
        key=_number_or_1,
        default="",
    )
    node_ids = [f"{role}#{number}" if number else role for role in roles]
    return ", ".join(f"dagwright node {document['run_id']} {node_id}" for node_id in node_ids)


def _number_or_1(text: str) -> int:
    return int(text or 1)


def _problem_line(problem: Mapping[str, Any]) -> str:
    location = problem.get("pointer") or problem.get("node_id")
    location_text = f" at {one_line(str(location))}" if location else ""
    hint = f" ({one_line(str(problem['hint']))})" if problem.get("hint") else ""
    message = one_line(str(problem.get("message", "")), limit=2_000)
    return f"error: {problem.get('code', 'failed')}{location_text}: {message}{hint}"


def _print_output(
    document: Mapping[str, Any], output: Output, *, limit: int | None, write: Write | None = None
) -> None:
    value = document["output"]
    if (document["error"] or {}).get("code") == PLAN_INVALID:
        # The report about an invalid plan is not an answer.
        return
    if value is None or value == {}:
        return
    text, write = (
        terminal_text(indented_value_text(value)),
        write if write is not None and isinstance(value, str) else output.print,
    )
    write(text[:limit])
    if limit is not None and len(text) > limit:
        output.print(f"… complete output: dagwright result {document['run_id']}")
