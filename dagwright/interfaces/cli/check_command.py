"""`check`: report all problems of a plan, or describe a valid plan. The command needs no server."""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.table import Table
from rich.text import Text

from dagwright.core.errors import PlanInvalid
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.graph import levels_of
from dagwright.core.model.policy import default_policy
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.text import format_count
from dagwright.core.validation.checked_plan import CheckedPlan
from dagwright.core.validation.inputs import DeclaredInputs
from dagwright.dialects.written_values import Repair
from dagwright.features.compensation.compensation import compensation_notes
from dagwright.interfaces.cli.exit_codes import ExitCode
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.plan_input import (
    STANDARD_INPUT,
    PlanSource,
    invalid_plan_document,
    parse_context,
    problem_lines,
    read_policy,
    read_raw_sources,
    read_sources,
)
from dagwright.interfaces.cli.run_commands import CheckArguments
from dagwright.plans.check_reports import valid_plan_report
from dagwright.plans.preparation import (
    check_plan,
    check_written_plan,
    compile_within_limits,
    notes_of_context,
    policy_problems,
)
from dagwright.settings import load_settings
from dagwright.toolset.toolset import load_toolset, references_of

_RUN_EVENTS = 5
"""Events of a run without nodes: its start, its first workflow task (three events) and its end."""
_CALL_EVENTS = 3
"""Events of a call: scheduled, started, completed."""
_SUB_PLAN_EVENTS = 4
"""Events of a sub-plan: start initiated, started, signal of its end, closed."""
_LEVEL_EVENTS = 3
"""Events of a workflow task: scheduled, started, completed. At best, all calls of a level share one workflow task.

Measured (docs/contributing/internals/temporal.md): a chain of 50 nodes has exactly the 305 computed events; a fan-out
to 200 nodes has 15 % more events than computed."""
_MAX_BATCH_NODES = 5_000
"""Maximum number of pure nodes in one activity."""


def expected_events(checked_plan: CheckedPlan, compiled_plan: CompiledPlan | None) -> int:
    """Estimate the number of history events of a run in which every call succeeds at the first attempt.

    The items of a `for_each` over a result are not counted, because their number is unknown before the run;
    `events_per_item` returns the number of events of each item.

    Args:
        compiled_plan: the plan with its regions (groups of pure nodes that one activity runs); `None` if the pure
            tools are unknown.
    """
    item_counts = {node.id: _item_count(node.for_each) for node in checked_plan.nodes if node.for_each is not None}
    if compiled_plan is None:
        call_count = len(checked_plan.nodes) - len(item_counts) + sum(item_counts.values())
        return _RUN_EVENTS + _CALL_EVENTS * call_count + _LEVEL_EVENTS * len(checked_plan.levels)
    called_nodes = [node for node in compiled_plan.nodes if node.kind != "external"]
    extra_batches = sum(max(len(node.members), node.inner_count) // _MAX_BATCH_NODES for node in called_nodes)
    call_count = sum(item_counts.get(node.id, 1) for node in called_nodes) + extra_batches
    return _RUN_EVENTS + _CALL_EVENTS * call_count + _LEVEL_EVENTS * (_depth(compiled_plan.nodes) + extra_batches)


def events_per_item(checked_plan: CheckedPlan) -> dict[str, int]:
    """Return node ID -> number of events per item, for `for_each` nodes whose items are unknown before the run."""
    maps = [node for node in checked_plan.nodes if node.for_each is not None and not isinstance(node.for_each, list)]
    return {node.id: _SUB_PLAN_EVENTS if node.plan is not None else _CALL_EVENTS for node in maps}


def _item_count(for_each: Any) -> int:
    return len(for_each) if isinstance(for_each, list) else 0


def _depth(nodes: Sequence[CompiledNode]) -> int:
    """Return the number of levels when each region counts as one node."""
    called_node_numbers = [number for number, node in enumerate(nodes) if node.kind != "external"]
    call_index_of = {number: index for index, number in enumerate(called_node_numbers)}
    for number in called_node_numbers:
        call_index_of |= dict.fromkeys(nodes[number].members, call_index_of[number])
    levels = levels_of(
        [
            sorted({call_index_of[dependency] for dependency in nodes[number].dependencies})
            for number in called_node_numbers
        ]
    )
    return max(levels, default=-1) + 1 if levels is not None else len(called_node_numbers)


IDS_SHOWN = 12
"""Maximum number of IDs of a level or path in the text output."""
LEVELS_SHOWN = 30


def check(arguments: CheckArguments, output: Output) -> int:
    """Check every plan that the arguments name. Return the exit code: 2 if any plan is invalid."""
    with _without_garbage_collection():
        return _check(arguments, output)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable garbage collection, which takes a third of the time and finds no garbage among millions of objects."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _check(arguments: CheckArguments, output: Output) -> int:
    references = references_of(arguments.tools, arguments.agents)
    tools = load_toolset(load_settings(), references).declarations()
    context = parse_context(arguments.context)
    policy = read_policy(arguments.policy_file) or default_policy("person")
    code = ExitCode.COMPLETED
    for source in (read_raw_sources if arguments.is_repairing else read_sources)(arguments.plans):
        repairs: Sequence[Repair] | None = None
        try:
            if arguments.is_repairing:
                checked_plan, repairs = _repair_plan(source, arguments, tools=tools, context=context)
                compiled_plan = None if arguments.allows_unknown_tools else compile_within_limits(checked_plan)
            else:
                checked_plan, compiled_plan = _check_plan(source, arguments, tools=tools, context=context)
            if problems := policy_problems(checked_plan, policy):
                raise PlanInvalid(problems)
        except PlanInvalid as invalid:
            code = ExitCode.REJECTED
            _write_problems(source, invalid, output)
        else:
            document = check_document(checked_plan, source, compiled_plan=compiled_plan, repairs=repairs)
            if arguments.is_compensating and compiled_plan is not None:
                document["notes"] += [note.to_json() for note in compensation_notes(compiled_plan)]
            document["notes"] += [note.to_json() for note in notes_of_context(checked_plan, context)]
            _write_document(document, checked_plan.inputs, output)
    return code


def _repair_plan(
    source: PlanSource,
    arguments: CheckArguments,
    *,
    tools: Mapping[str, ToolDeclaration],
    context: Mapping[str, str],
) -> tuple[CheckedPlan, Sequence[Repair]]:
    """Repair the plan in a model's response; return the plan and the repairs."""
    if isinstance(source.plan, PlanInvalid):
        raise source.plan
    return check_written_plan(
        str(source.plan),
        tools,
        dialect=arguments.dialect,
        context=context,
        allow_unknown_tools=arguments.allows_unknown_tools,
    )


def _check_plan(
    source: PlanSource,
    arguments: CheckArguments,
    *,
    tools: Mapping[str, ToolDeclaration],
    context: Mapping[str, str],
) -> tuple[CheckedPlan, CompiledPlan | None]:
    """Return a valid plan and its compiled form, which is `None` if unknown tools are allowed."""
    checked_plan = check_plan(
        source.plan,
        tools,
        dialect=arguments.dialect,
        context=context,
        allow_unknown_tools=arguments.allows_unknown_tools,
    )
    # The size limit depends on the effects of the tools, which are unknown for unknown tools.
    return checked_plan, None if arguments.allows_unknown_tools else compile_within_limits(checked_plan)


def check_document(
    checked_plan: CheckedPlan,
    source: PlanSource,
    *,
    compiled_plan: CompiledPlan | None,
    repairs: Sequence[Repair] | None = None,
) -> dict[str, Any]:
    """Return the `check` document of a valid plan.

    Args:
        compiled_plan: as in `expected_events`.
        repairs: the repairs; `None` if repair was not requested.
    """
    return {
        "file": source.file,
        "line": source.line,
        **valid_plan_report(checked_plan),
        "levels": checked_plan.levels,
        "expected_events": expected_events(checked_plan, compiled_plan),
        **({"events_per_item": item_events} if (item_events := events_per_item(checked_plan)) else {}),
        **({} if repairs is None else {"repairs": [repair.to_json() for repair in repairs]}),
    }


def _write_problems(source: PlanSource, invalid: PlanInvalid, output: Output) -> None:
    if output.is_json:
        output.document(invalid_plan_document(source, invalid), is_single_line=True)
        return
    for line in problem_lines(source, invalid):
        output.log(one_line(line, limit=2_000))


def _write_document(document: Mapping[str, Any], inputs: DeclaredInputs, output: Output) -> None:
    if output.is_json:
        output.document(document, is_single_line=True)
        return
    name = "standard input" if document["file"] == STANDARD_INPUT else document["file"]
    location = f"{name}, line {document['line']}" if document["line"] else name
    output.print(one_line(f"{location}: valid", limit=5_000))
    output.show(_table(document, inputs))


def _table(document: Mapping[str, Any], inputs: DeclaredInputs) -> Table:
    table = Table(box=None)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.show_header = False

    def add_row(name: str, text: str) -> None:
        table.add_row(name, Text(one_line(text, limit=2_000)))

    if document["title"]:
        add_row("title", document["title"])
    add_row("dialect", document["dialect"])
    edges, levels = format_count(document["edge_count"], "edge"), format_count(len(document["levels"]), "level")
    add_row("nodes", f"{document['node_count']:,} with {edges} in {levels}")
    for number, ids in enumerate(document["levels"][:LEVELS_SHOWN]):
        add_row(f"level {number}", _first_ids(ids, separator=", "))
    if len(document["levels"]) > LEVELS_SHOWN:
        add_row("", f"and {format_count(len(document['levels']) - LEVELS_SHOWN, 'more level')}")
    add_row("critical path", _first_ids(document["critical_path"], separator=" → "))
    add_row("events", _events_text(document))
    for name, schema in inputs.items():
        prompt = f": {schema['prompt']}" if schema.get("prompt") else ""
        add_row("input", f"{name} ({schema.get('type', 'string') or 'any type'}){prompt}")
    for note in document["notes"]:
        add_row("note", f"{note['node_id']}: {note['message']}" if note["node_id"] else note["message"])
    return table


def _events_text(document: Mapping[str, Any]) -> str:
    """Return the expected number of events and the number per item of each map."""
    maps_by_event_count: dict[int, list[str]] = {}
    for node_id, event_count in document.get("events_per_item", {}).items():
        maps_by_event_count.setdefault(event_count, []).append(node_id)
    parts = [f"about {document['expected_events']:,}"]
    parts += [
        f"{event_count} for each item of {_id_list(map_ids)}"
        for event_count, map_ids in sorted(maps_by_event_count.items())
    ]
    message = ", and ".join(parts)
    return f"{message} in the run's history" if len(parts) == 1 else f"{message}, in the run's history"


def _id_list(ids: list[str]) -> str:
    if len(ids) > IDS_SHOWN:
        return _first_ids(ids, separator=", ")
    return ids[0] if len(ids) == 1 else f"{', '.join(ids[:-1])} and {ids[-1]}"


def _first_ids(ids: list[str], *, separator: str) -> str:
    listed_ids = separator.join(ids[:IDS_SHOWN])
    return listed_ids if len(ids) <= IDS_SHOWN else f"{listed_ids}{separator}… ({len(ids):,} in all)"
