"""`explain`: why a run or node waits, down to the root cause, or where its result comes from."""

from collections.abc import Iterator, Mapping
from typing import Any

from dagwright.client.runs import namespace_runs
from dagwright.core.text import format_count
from dagwright.features.explain.reasons import Reason
from dagwright.features.explain.why import sentence
from dagwright.history.executions import NodeNotFound
from dagwright.history.run_explainer import RunExplanation
from dagwright.interfaces.cli.command_arguments import ShowArguments
from dagwright.interfaces.cli.command_connection import command_settings, open_read_connection
from dagwright.interfaces.cli.command_loop import InterruptHandling, run_async
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode, ExitCode
from dagwright.interfaces.cli.node_text import closing_text, override_text, short_time
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.plan_input import value_as_text
from dagwright.interfaces.cli.request_text import answer_command, option_lines
from dagwright.interfaces.cli.round_text import reason_lines, rounds_of
from dagwright.interfaces.cli.run_summary import facts_of_entity, found_entity_lines

_MAX_LINE_CHARACTERS = 1_000
_REQUESTS_SHOWN = 20


def explain(arguments: ShowArguments, output: Output) -> int:
    """Explain the state of a run or node; the exit code is 0 for any state.

    Raises:
        CommandError: the run has no such node.
    """
    settings = command_settings()

    async def work(_: InterruptHandling) -> int:
        async with open_read_connection(settings, output) as connection:
            try:
                explanation = await namespace_runs(connection, settings).explain(arguments.run_id, arguments.node)
            except NodeNotFound as error:
                raise CommandError(str(error), code=CommandErrorCode.NOT_FOUND) from None
        if output.is_json:
            output.document(explanation.to_json())
        else:
            for line in explanation_lines(explanation):
                output.print(f"{'  ' if line.startswith(' ') else ''}{one_line(line, limit=_MAX_LINE_CHARACTERS)}")
        return ExitCode.COMPLETED

    return run_async(work, output)


def explanation_lines(explanation: RunExplanation) -> Iterator[str]:
    """Yield the lines about a run, or about a node and its causes."""
    reason_by_node = {reason.node_id: reason for reason in explanation.chain.reasons}
    if explanation.node_id:
        yield from _lines_of_chain(explanation, reason_by_node)
    else:
        status = explanation.view.status
        verb = "has" if status == "failed" else "is"
        yield f"{explanation.view.run_id} {verb} {status.replace('_', ' ')}"
        if (error_text := explanation.unexplained_error()) is not None:
            yield error_text
        if not explanation.view.is_closed and (rounds := rounds_of(explanation.view)) is not None:
            yield from [line for line in reason_lines({"rounds": rounds}) if line.startswith("Round ")][-1:]
        start_reasons = [*explanation.start_reasons()]
        requests_outside_chain = explanation.requests_outside_chain() if not start_reasons else ()
        if not start_reasons and not requests_outside_chain:
            yield explanation.describe(short_time)
        for open_request in requests_outside_chain[:_REQUESTS_SHOWN]:
            request = open_request.to_json(explanation.view.run_id)
            yield f"{open_request.id} {open_request.waiting_reason.partition(chr(10))[0]}"
            yield from (f"  {line}" for line in option_lines(request))
            yield f"  {answer_command(request)}"
        if (omitted_count := len(requests_outside_chain) - _REQUESTS_SHOWN) > 0:
            yield f"and {omitted_count:,} more requests; `dagwright inbox` lists all"
        for start_reason in start_reasons:
            blocked_count = start_reason.facts.get("blocks")
            blocked_text = (
                f"; {blocked_count:,} {'node is' if blocked_count == 1 else 'nodes are'} blocked by it"
                if blocked_count
                else ""
            )
            yield sentence(explanation.chain, start_reason, time_formatter=short_time) + blocked_text
        yield from found_entity_lines(explanation.resolved_lookups_of_run())
    if explanation.chain.omitted:
        yield f"and {explanation.chain.omitted:,} more"
    for note in explanation.notes:
        yield f"note: {note['message']}"


def _lines_of_chain(explanation: RunExplanation, reason_by_node: Mapping[str, Reason]) -> Iterator[str]:
    """Yield the sentence about the node, then the facts about each node in the chain."""
    chain = explanation.chain
    node_reason = chain.reasons[0]
    yield sentence(chain, node_reason, time_formatter=short_time)
    if not node_reason.status.is_final:
        named_ids = _nodes_in_sentence(node_reason, reason_by_node)
        for reason in chain.reasons:
            if reason.node_id not in named_ids:
                yield f"  {sentence(chain, reason, time_formatter=short_time)}"
        return
    for reason in chain.reasons:
        if reason is not node_reason:
            yield sentence(chain, reason, time_formatter=short_time)
        for fact in _fact_lines(reason):
            yield f"  {fact}"


def _nodes_in_sentence(reason: Reason, reason_by_node: Mapping[str, Reason]) -> set[str]:
    """Return the IDs of the nodes in the sentence of a reason: its node, its first cause, and so on."""
    visited_ids = {reason.node_id}
    while next_cause := next(
        (cause for cause in reason.causes if cause in reason_by_node and cause not in visited_ids), None
    ):
        visited_ids.add(next_cause)
        reason = reason_by_node[next_cause]
    return visited_ids


def _fact_lines(reason: Reason) -> Iterator[str]:
    facts = reason.facts
    if facts.get("tool") and facts.get("attempts"):
        version_text = f", version {facts['tool_version']}" if facts.get("tool_version") else ""
        if planned_version := facts.get("planned_tool_version"):
            version_text += f" (the plan was compiled with version {planned_version})"
        yield f"tool {facts['tool']}{version_text}, {format_count(facts['attempts'], 'attempt')}"
    if reason.causes and reason.kind == "completed":
        yield f"from {', '.join(reason.causes)}"
    for name, value in facts.get("inputs", {}).items():
        yield f"input {name}: {value_as_text(value)}"
    for lookup in facts.get("lookups", ()):
        yield from _lookup_lines(lookup)
    for answer in facts.get("answers", ()):
        yield closing_text(answer)
    for override in facts.get("overrides", ()):
        yield override_text(override)
    if "result" in facts:
        yield f"result: {value_as_text(facts['result'])}"


def _lookup_lines(lookup: Mapping[str, Any]) -> Iterator[str]:
    """Yield the entity that a lookup found for an argument, with the reason, then the answers that the lookup got."""
    entity, reason = lookup["entity"], str(lookup.get("reason"))
    facts_text = ", ".join(facts_of_entity(entity))
    match_text = f"is {entity.get('name')} ({facts_text})"
    if reason.startswith("@"):
        # The argument names a known entity, such as `@order`, so nothing was looked up.
        yield f"{lookup['argument']}: {reason} {match_text}"
    else:
        yield f"{lookup['argument']}: {lookup['search_text']!r} ({lookup['entity_type']}) {match_text}: {reason}"
    for answer in lookup["answers"]:
        yield f"  {answer['request_id']}: {closing_text(answer)}"
