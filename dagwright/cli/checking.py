"""`check`: says of every plan what is wrong with it, or what it is. Needs no server and no Temporal."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.table import Table
from rich.text import Text

from dagwright.cli.exits import ExitCode
from dagwright.cli.output import Output, one_line
from dagwright.cli.plans import STANDARD_INPUT, PlanSource, read_pairs, read_sources, refusal, refusal_lines
from dagwright.cli.requests import CheckRequest
from dagwright.plan.errors import PlanInvalid
from dagwright.plan.tools import ToolDeclaration
from dagwright.plan.validation import Checked
from dagwright.preparation import check_plan, check_size
from dagwright.settings import load_settings
from dagwright.toolset import load_toolset

IDS_SHOWN = 12
"""Ids of one level or path that a person is shown."""
LEVELS_SHOWN = 30

_EVENTS_OF_RUN = 5
_EVENTS_OF_CALL = 3
_EVENTS_OF_LEVEL = 3
"""A call is scheduled, started and completed; the calls of a level share a workflow task at best. Measured: a chain of
50 has 305 events, which this gives; a fan-out of 200 has 15 % more than it gives (temporal-facts.md section 14)."""


def check(request: CheckRequest, output: Output) -> int:
    """Checks every plan of the request and returns the exit code: 2 if any of them is invalid."""
    with _without_garbage_collection():
        return _check(request, output)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """The checker makes millions of objects that live to its end: looking for garbage among them costs a third."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _check(request: CheckRequest, output: Output) -> int:
    tools = load_toolset(load_settings(), request.tools).declarations()
    context = read_pairs(request.context, option="--context")
    code = ExitCode.COMPLETED
    for source in read_sources(request.plans):
        try:
            checked = _checked(source, request, tools=tools, context=context)
        except PlanInvalid as invalid:
            code = ExitCode.REFUSED
            _write_refusal(source, invalid, output)
        else:
            _write_document(check_document(checked, source), output)
    return code


def _checked(
    source: PlanSource,
    request: CheckRequest,
    *,
    tools: Mapping[str, ToolDeclaration],
    context: Mapping[str, str],
) -> Checked:
    checked = check_plan(source.plan, tools, dialect=request.dialect, context=context, any_tool=request.any_tool)
    if not request.any_tool:
        # Of tools on trust nobody knows which are pure, and a plan may have far more of those.
        check_size(checked)
    return checked


def check_document(checked: Checked, source: PlanSource) -> dict[str, Any]:
    """Returns the `check` document of a valid plan (contract.md section 5)."""
    levels = checked.levels
    return {
        "file": source.file,
        "line": source.line,
        "status": "valid",
        "title": checked.plan.title,
        "dialect": checked.dialect,
        "nodes": len(checked.nodes),
        "edges": checked.edges,
        "levels": levels,
        "critical_path": checked.critical_path,
        "inputs": [
            {"name": name, "type": schema.get("type", "string"), "prompt": schema.get("prompt")}
            for name, schema in checked.inputs.items()
        ],
        "expected_events": expected_events(checked, depth=len(levels)),
        "notes": [note.to_json() for note in checked.notes],
    }


def expected_events(checked: Checked, *, depth: int) -> int:
    """Returns about how many history events a run will have, if every call succeeds at once.

    A `for_each` over a result counts as one item: how many there are is not known before the run.

    Args:
        depth: count of levels.
    """
    calls = sum(len(node.for_each) if isinstance(node.for_each, list) else 1 for node in checked.nodes)
    return _EVENTS_OF_RUN + _EVENTS_OF_CALL * calls + _EVENTS_OF_LEVEL * depth


def _write_refusal(source: PlanSource, invalid: PlanInvalid, output: Output) -> None:
    if output.is_json:
        output.document(refusal(source, invalid), is_line=True)
        return
    for line in refusal_lines(source, invalid):
        output.tell(one_line(line, limit=2_000))


def _write_document(document: Mapping[str, Any], output: Output) -> None:
    if output.is_json:
        output.document(document, is_line=True)
        return
    name = "standard input" if document["file"] == STANDARD_INPUT else document["file"]
    place = f"{name}, line {document['line']}" if document["line"] else name
    output.say(one_line(f"{place}: valid", limit=5_000))
    output.show(_table(document))


def _table(document: Mapping[str, Any]) -> Table:
    table = Table(box=None)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.show_header = False

    def row(name: str, text: str) -> None:
        table.add_row(name, Text(one_line(text, limit=2_000)))

    if document["title"]:
        row("title", document["title"])
    row("dialect", document["dialect"])
    row("nodes", f"{document['nodes']:,} with {document['edges']:,} edges in {len(document['levels']):,} levels")
    for number, ids in enumerate(document["levels"][:LEVELS_SHOWN]):
        row(f"level {number}", _some(ids, sign=", "))
    if len(document["levels"]) > LEVELS_SHOWN:
        row("", f"and {len(document['levels']) - LEVELS_SHOWN:,} more levels")
    row("critical path", _some(document["critical_path"], sign=" → "))
    row("events", f"about {document['expected_events']:,} in the run's history")
    for item in document["inputs"]:
        prompt = f": {item['prompt']}" if item["prompt"] else ""
        row("input", f"{item['name']} ({item['type'] or 'any type'}){prompt}")
    for note in document["notes"]:
        row("note", f"{note['node']}: {note['message']}" if note["node"] else note["message"])
    return table


def _some(ids: list[str], *, sign: str) -> str:
    shown = sign.join(ids[:IDS_SHOWN])
    return shown if len(ids) <= IDS_SHOWN else f"{shown}{sign}… ({len(ids):,} in all)"
