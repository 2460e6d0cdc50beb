"""`check`: says of every plan what is wrong with it, or what it is. Needs no server and no Temporal."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.table import Table
from rich.text import Text

from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.errors import PlanInvalid
from dagwright.core.model.policy import default_policy
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.validation.checked_plan import Checked
from dagwright.dialects.written_values import Mend
from dagwright.features.compensation.compensation import notes_of_undoing
from dagwright.interfaces.cli.estimate import events_per_item, expected_events
from dagwright.interfaces.cli.exits import ExitCode
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.plans import (
    STANDARD_INPUT,
    PlanSource,
    read_context,
    read_policy,
    read_sources,
    read_written_sources,
    refusal,
    refusal_lines,
)
from dagwright.interfaces.cli.requests import CheckRequest
from dagwright.interfaces.cli.wording import counted
from dagwright.plans.preparation import check_plan, check_size, check_written_plan, notes_of_context, policy_problems
from dagwright.settings import load_settings
from dagwright.toolset.toolset import load_toolset, references_of

IDS_SHOWN = 12
"""Ids of one level or path that a person is shown."""
LEVELS_SHOWN = 30


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
    references = references_of(request.tools, request.agents)
    tools = load_toolset(load_settings(), references).declarations()
    context = read_context(request.context)
    policy = read_policy(request.policy_file) or default_policy("person")
    code = ExitCode.COMPLETED
    for source in (read_written_sources if request.is_mending else read_sources)(request.plans):
        mends: Sequence[Mend] | None = None
        try:
            if request.is_mending:
                checked, mends = _mended(source, request, tools=tools, context=context)
                held = None if request.any_tool else check_size(checked)
            else:
                checked, held = _checked(source, request, tools=tools, context=context)
            if refused := policy_problems(checked, policy):
                raise PlanInvalid(refused)
        except PlanInvalid as invalid:
            code = ExitCode.REFUSED
            _write_refusal(source, invalid, output)
        else:
            document = check_document(checked, source, held=held, mends=mends)
            if request.is_all_or_nothing and held is not None:
                document["notes"] += [note.to_json() for note in notes_of_undoing(held)]
            document["notes"] += [note.to_json() for note in notes_of_context(checked, context)]
            _write_document(document, output)
    return code


def _mended(
    source: PlanSource,
    request: CheckRequest,
    *,
    tools: Mapping[str, ToolDeclaration],
    context: Mapping[str, str],
) -> tuple[Checked, Sequence[Mend]]:
    """Returns the plan in a model's answer, and what was mended to read it."""
    if isinstance(source.plan, PlanInvalid):
        raise source.plan
    return check_written_plan(
        str(source.plan), tools, dialect=request.dialect, context=context, any_tool=request.any_tool
    )


def _checked(
    source: PlanSource,
    request: CheckRequest,
    *,
    tools: Mapping[str, ToolDeclaration],
    context: Mapping[str, str],
) -> tuple[Checked, CompiledPlan | None]:
    """Returns a valid plan, and what a run would hold of it, unless its tools are taken on trust."""
    checked = check_plan(source.plan, tools, dialect=request.dialect, context=context, any_tool=request.any_tool)
    # Of tools on trust nobody knows which are pure, and a plan may have far more of those.
    return checked, None if request.any_tool else check_size(checked)


def check_document(
    checked: Checked, source: PlanSource, *, held: CompiledPlan | None, mends: Sequence[Mend] | None = None
) -> dict[str, Any]:
    """Returns the `check` document of a valid plan.

    Args:
        held: as in `expected_events`.
        mends: what was mended to read it, if that was asked for; they are among the notes too.
    """
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
        "expected_events": expected_events(checked, held),
        **({"events_per_item": per_item} if (per_item := events_per_item(checked)) else {}),
        "notes": [note.to_json() for note in checked.notes],
        **({} if mends is None else {"mends": [mend.to_json() for mend in mends]}),
    }


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
    edges, levels = counted(document["edges"], "edge"), counted(len(document["levels"]), "level")
    row("nodes", f"{document['nodes']:,} with {edges} in {levels}")
    for number, ids in enumerate(document["levels"][:LEVELS_SHOWN]):
        row(f"level {number}", _some(ids, sign=", "))
    if len(document["levels"]) > LEVELS_SHOWN:
        row("", f"and {counted(len(document['levels']) - LEVELS_SHOWN, 'more level')}")
    row("critical path", _some(document["critical_path"], sign=" → "))
    row("events", _events_words(document))
    for item in document["inputs"]:
        prompt = f": {item['prompt']}" if item["prompt"] else ""
        row("input", f"{item['name']} ({item['type'] or 'any type'}){prompt}")
    for note in document["notes"]:
        row("note", f"{note['node']}: {note['message']}" if note["node"] else note["message"])
    return table


def _events_words(document: Mapping[str, Any]) -> str:
    """Expected number of events of a run's history, and the number that each item of a map adds."""
    maps_of: dict[int, list[str]] = {}
    for node, events in document.get("events_per_item", {}).items():
        maps_of.setdefault(events, []).append(node)
    parts = [f"about {document['expected_events']:,}"]
    parts += [f"{events} for each item of {_listed(nodes)}" for events, nodes in sorted(maps_of.items())]
    words = ", and ".join(parts)
    return f"{words} in the run's history" if len(parts) == 1 else f"{words}, in the run's history"


def _listed(ids: list[str]) -> str:
    if len(ids) > IDS_SHOWN:
        return _some(ids, sign=", ")
    return ids[0] if len(ids) == 1 else f"{', '.join(ids[:-1])} and {ids[-1]}"


def _some(ids: list[str], *, sign: str) -> str:
    shown = sign.join(ids[:IDS_SHOWN])
    return shown if len(ids) <= IDS_SHOWN else f"{shown}{sign}… ({len(ids):,} in all)"
