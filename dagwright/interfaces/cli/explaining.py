"""`explain`: what a node waits for, down to the root of it, or what is behind a result."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dagwright.client.runs import open_runs
from dagwright.features.explain.reasons import Reason
from dagwright.features.explain.why import sentence
from dagwright.history.explaining import Explanation, NodeUnknown
from dagwright.interfaces.cli.async_runs import Farewell, run_async
from dagwright.interfaces.cli.connecting import command_settings, connected_to_read
from dagwright.interfaces.cli.endings import bound_lines, facts_of_entity
from dagwright.interfaces.cli.exits import CommandRefused, ExitCode
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.request_words import answer_words, option_lines
from dagwright.interfaces.cli.requests import LookRequest
from dagwright.interfaces.cli.round_words import reason_lines, rounds_of
from dagwright.interfaces.cli.wording import closing_words, counted, near_time, step_text

_LINE = 1_000
_REQUESTS_TOLD = 20


def explain(request: LookRequest, output: Output) -> int:
    """Says why a run or a node of it is where it is; 0 whatever became of the run.

    Raises:
        CommandRefused: the run has no such node.
    """
    settings = command_settings()

    async def work(_: Farewell) -> int:
        async with connected_to_read(settings, output) as connection:
            try:
                told = await open_runs(connection, settings).explain(request.workflow_id, request.node)
            except NodeUnknown as unknown:
                raise CommandRefused(str(unknown), status="not_found") from None
        if output.is_json:
            output.document(told.to_json())
        else:
            for line in lines_of(told):
                output.say(f"{'  ' if line.startswith(' ') else ''}{one_line(line, limit=_LINE)}")
        return ExitCode.COMPLETED

    return run_async(work, output)


def lines_of(told: Explanation) -> Iterator[str]:
    """Yields what is told of a run, or of a node and all that is behind it."""
    reasons = {reason.node: reason for reason in told.chain.reasons}
    if told.node:
        yield from _lines_of_chain(told, reasons)
    else:
        yield f"{told.view.workflow_id} is {told.view.status.replace('_', ' ')}"
        if (ended_by := told.ended_by()) is not None:
            yield ended_by
        if not told.view.is_closed and (rounds := rounds_of(told.view)) is not None:
            yield from [line for line in reason_lines({"rounds": rounds}) if line.startswith("Round ")][-1:]
        starts = [*told.starts()]
        asked_before = told.asked_before() if not starts else ()
        if not starts and not asked_before:
            yield told.words(near_time)
        for asked in asked_before[:_REQUESTS_TOLD]:
            request = asked.to_json(told.view.workflow_id)
            yield f"{asked.id} {asked.waits_for.partition(chr(10))[0]}"
            yield from (f"  {line}" for line in option_lines(request))
            yield f"  {answer_words(request)}"
        if (left := len(asked_before) - _REQUESTS_TOLD) > 0:
            yield f"and {left:,} more requests; `dagwright inbox` has all"
        for start in starts:
            blocks = start.facts.get("blocks")
            held = f"; {blocks:,} {'node is' if blocks == 1 else 'nodes are'} blocked by it" if blocks else ""
            yield sentence(told.chain, start, clock=near_time) + held
        yield from bound_lines(told.bound())
    if told.chain.omitted:
        yield f"and {told.chain.omitted:,} more"
    for note in told.notes:
        yield f"note: {note['message']}"


def _lines_of_chain(told: Explanation, reasons: Mapping[str, Reason]) -> Iterator[str]:
    """Yields the sentence of the node, and then what is known of each node behind it."""
    start = told.chain.reasons[0]
    yield sentence(told.chain, start, clock=near_time)
    if not start.status.is_final:
        told_already = _first_ones(start, reasons)
        for reason in told.chain.reasons:
            if reason.node not in told_already:
                yield f"  {sentence(told.chain, reason, clock=near_time)}"
        return
    for reason in told.chain.reasons:
        if reason is not start:
            yield sentence(told.chain, reason, clock=near_time)
        for fact in _fact_lines(reason):
            yield f"  {fact}"


def _first_ones(start: Reason, reasons: Mapping[str, Reason]) -> set[str]:
    """Returns what the sentence of a reason names: the first one behind it, and so on."""
    seen = {start.node}
    while following := next((name for name in start.because if name in reasons and name not in seen), None):
        seen.add(following)
        start = reasons[following]
    return seen


def _fact_lines(reason: Reason) -> Iterator[str]:
    facts = reason.facts
    if facts.get("tool") and facts.get("attempts"):
        version = f", version {facts['tool_version']}" if facts.get("tool_version") else ""
        if planned := facts.get("planned_tool_version"):
            version += f" (the plan was compiled with version {planned})"
        yield f"tool {facts['tool']}{version}, {counted(facts['attempts'], 'attempt')}"
    if reason.because and reason.kind == "completed":
        yield f"from {', '.join(reason.because)}"
    for name, value in facts.get("inputs", {}).items():
        yield f"input {name}: {_value_words(value)}"
    for bound in facts.get("lookups", ()):
        yield from _lookup_lines(bound)
    for answer in facts.get("answers", ()):
        yield closing_words(answer)
    for step in facts.get("steps", ()):
        yield step_text(step)
    if "result" in facts:
        yield f"result: {_value_words(facts['result'])}"


def _lookup_lines(bound: Mapping[str, Any]) -> Iterator[str]:
    """Yields which party an argument is bound to and why, and who answered what of it was asked."""
    party, reason = bound["party"], str(bound.get("reason"))
    told_apart = ", ".join(facts_of_entity(party))
    is_called = f"is {party.get('name')} ({told_apart})"
    if reason.startswith("@"):
        yield f"{bound['argument']}: {reason} {is_called}"
    else:
        yield f"{bound['argument']}: {bound['search_text']!r} ({bound['entity_type']}) {is_called}: {reason}"
    for answer in bound["answers"]:
        yield f"  {answer['request_id']}: {closing_words(answer)}"


def _value_words(value: Any) -> str:
    """Returns a value on one line: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
