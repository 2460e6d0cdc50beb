"""`list`, `status`, `result`, `graph`, `node`: show runs. These commands need no worker."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from dagwright.client.graph import GraphListing
from dagwright.client.graph_folding import graph_of_boxes, is_folded
from dagwright.client.node_view import read_node_view
from dagwright.client.run_lists import RunFilter, RunSummary, parse_since
from dagwright.client.runs import namespace_runs
from dagwright.core.model.times import format_elapsed_time, parse_time
from dagwright.core.scheduler.run_state import counts_of
from dagwright.history.document_hydration import output_loss_reason
from dagwright.history.executions import NodeNotFound
from dagwright.interfaces.cli.background import STARTING_MESSAGE, is_worker_starting
from dagwright.interfaces.cli.command_arguments import ShowArguments
from dagwright.interfaces.cli.command_connection import (
    command_settings,
    next_page_field,
    open_read_connection,
    parse_cursor,
)
from dagwright.interfaces.cli.command_loop import InterruptHandling, run_async
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode, ExitCode, exit_code_of
from dagwright.interfaces.cli.graph_drawing import mermaid, svg
from dagwright.interfaces.cli.json_streaming import Elements
from dagwright.interfaces.cli.live_display import RUN_STYLES
from dagwright.interfaces.cli.node_text import (
    closing_text,
    failed_items_text,
    item_text,
    lineage_texts,
    local_date_time,
    local_time,
    manual_changes_text,
    node_status,
    node_text,
    node_tool_text,
    override_text,
    usage_lines,
    usage_text,
    zone_at,
)
from dagwright.interfaces.cli.output import Output, append_link, indented_value_text, one_line, terminal_text
from dagwright.interfaces.cli.plan_input import parse_tags
from dagwright.interfaces.cli.progress_tree import call_text
from dagwright.interfaces.cli.request_text import answer_command, deadline_text, detail_lines, request_line
from dagwright.interfaces.cli.round_text import phase_line, reason_lines
from dagwright.interfaces.cli.run_commands import ListArguments
from dagwright.interfaces.cli.run_summary import found_entity_lines, print_result, print_run_error, summary_line
from dagwright.interfaces.cli.status_rows import status_rows
from dagwright.interfaces.cli.tool_command import pause_line
from dagwright.plans.drawing_text import MARKS
from dagwright.server import Server
from dagwright.settings import load_settings

if TYPE_CHECKING:
    from dagwright.client.runs import Runs
    from dagwright.history.run_view import RunView

Document = Mapping[str, Any]

_REQUESTS_SHOWN = 20
_NO_WORKER = "no_worker"
"""Code of the note that no worker serves a queue of the run."""


def list_runs(arguments: ListArguments, output: Output) -> int:
    """List the newest runs that match the options; the exit code is 0.

    Raises:
        CommandError: an option is invalid.
    """
    tags, since = parse_tags(arguments.tags), _parse_since(arguments.since)
    run_filter = RunFilter(
        status=arguments.status, title=arguments.title, since=since, tags=tags, template=arguments.template
    )
    after = parse_cursor(arguments.after)

    async def work_with_runs(runs: "Runs", server: Server) -> int:
        summaries, cursor = await runs.nonempty_page_of_runs(limit=arguments.limit, run_filter=run_filter, after=after)
        if output.is_json:
            output.document({"runs": [run.to_json() for run in summaries], **next_page_field(cursor)})
            return ExitCode.COMPLETED
        if summaries:
            output.show(_table(summaries))
            for pause in await runs.paused_tools():
                output.print(pause_line(pause))
            if url := server.runs_url():
                output.print(f"Temporal UI: {url}")
        else:
            output.print("there are no runs" if run_filter == RunFilter() and after is None else "no run matches")
        if cursor is not None:
            output.log(f"there are more runs; continue with `--after {cursor}`")
        return ExitCode.COMPLETED

    return _run_with_connection(work_with_runs, output)


def _parse_since(text: str | None) -> float | None:
    try:
        return None if text is None else parse_since(text)
    except ValueError as error:
        raise CommandError(f"--since {error}") from None


def status(arguments: ShowArguments, output: Output) -> int:
    """Show the state of a run and its nodes, and return the exit code of the run; 0 for an open run."""

    def show(view: "RunView", document: Document, server: Server) -> int:
        if output.is_json:
            output.document(document)
        else:
            url = server.run_url(view.run_id, execution_id=view.execution_id)
            _print_status(view, document, output, url=url, lists_all_items=arguments.lists_all_items)
        return exit_code_of(view.status)

    return _show_document(arguments, output, show)


def result(arguments: ShowArguments, output: Output) -> int:
    """Show the output of a run, and return the exit code of the run; 0 for an open run, 1 for a lost output."""
    if arguments.is_full and output.is_json:
        return _stream_result(arguments, output)

    def show(view: "RunView", document: Document, _: Server) -> int:
        if output.is_json:
            output.document(document)
        else:
            print_result(view, document, output)
        return _exit_code_of_result(view, document["notes"])

    return _show_document(arguments, output, show)


def _stream_result(arguments: ShowArguments, output: Output) -> int:
    """Write the document with every node and value as a stream, because the document may exceed the memory."""

    async def work_with_runs(runs: "Runs", _: Server) -> int:
        view = await runs.reader(arguments.run_id).read()
        notes: list[Mapping[str, Any]] = []
        await output.stream(_collect_notes(runs.full_document(view), notes))
        return _exit_code_of_result(view, notes)

    return _run_with_connection(work_with_runs, output)


async def _collect_notes(
    parts: AsyncIterator[tuple[str, Any]], notes: list[Mapping[str, Any]]
) -> AsyncIterator[tuple[str, Any]]:
    """Yield the parts of a document, and add its notes to a list."""
    async for name, part in parts:
        if name == "notes":
            notes.extend(part)
        yield name, part


def _exit_code_of_result(view: "RunView", notes: Sequence[Mapping[str, Any]]) -> ExitCode:
    code = exit_code_of(view.status)
    return ExitCode.FAILED if code is ExitCode.COMPLETED and output_loss_reason(notes) is not None else code


def graph(arguments: ShowArguments, output: Output) -> int:
    """Draw the graph of a run; the exit code is 0."""

    async def work_with_runs(runs: "Runs", _: Server) -> int:
        view = await runs.reader(arguments.run_id).read()
        if arguments.format == "json":
            await output.stream(_graph_parts(runs.graph(view)))
        else:
            _print_graph(view, arguments.format, output)
        return ExitCode.COMPLETED

    return _run_with_connection(work_with_runs, output)


async def _graph_parts(listing: GraphListing) -> AsyncIterator[tuple[str, Any]]:
    yield "nodes", Elements(listing.nodes())
    yield "edges", Elements(listing.edges())
    if listing.notes:
        yield "notes", listing.notes


def _print_graph(view: "RunView", drawing_format: str, output: Output) -> None:
    """Write the graph of a run; in large runs a box represents several nodes."""
    diagram = graph_of_boxes(view.scheduler) if view.scheduler else view.graph()
    output.print((svg if drawing_format == "svg" else mermaid)(diagram))
    if is_folded(diagram) and view.scheduler:
        total, run_id = counts_of(view.scheduler.plan, view.scheduler.records).total(), one_line(view.run_id)
        box_text = f"{len(diagram['nodes']):,} box{'es' if len(diagram['nodes']) > 1 else ''}"
        output.log(
            f"{total:,} nodes are drawn as {box_text}; `dagwright graph {run_id} --format json` lists every node and "
            f"edge, `dagwright node {run_id} NODE` shows one node"
        )


def node(arguments: ShowArguments, output: Output) -> int:
    """Show a node or item of the run or of a sub-plan; the exit code is 0.

    Raises:
        CommandError: the run has no such node, or does not have the node yet.
    """

    async def work_with_runs(runs: "Runs", _: Server) -> int:
        try:
            node_report = await read_node_view(runs, arguments.run_id, arguments.node, full=arguments.is_full)
        except NodeNotFound as error:
            raise CommandError(str(error), code=CommandErrorCode.NOT_FOUND) from None
        if output.is_json:
            output.document(node_report.document)
        else:
            _print_node(str(node_report.document["node_id"]), node_report.document, node_report.notes, output)
        return ExitCode.COMPLETED

    return _run_with_connection(work_with_runs, output)


def _show_document(arguments: ShowArguments, output: Output, show: "Callable[[RunView, Document, Server], int]") -> int:
    """Show a run with its values, including the values in the payload store."""

    async def work_with_runs(runs: "Runs", server: Server) -> int:
        view = await runs.reader(arguments.run_id).read()
        document: Document = await runs.document(view, full=arguments.is_full)
        if any(note["code"] == _NO_WORKER for note in document["notes"]) and is_worker_starting(load_settings()):
            document = with_starting_worker(document)
        return show(view, document, server)

    return _run_with_connection(work_with_runs, output)


def with_starting_worker(document: Document) -> Document:
    """Return the document with texts about a starting worker instead of those about a missing worker."""
    notes = [note for note in document["notes"] if note["code"] != _NO_WORKER]
    nodes = {
        name: {**node, "reason": STARTING_MESSAGE} if (node["reason"] or "").startswith("no worker for ") else node
        for name, node in document["nodes"].items()
    }
    starting_note = {"code": "worker_starting", "node_id": None, "message": STARTING_MESSAGE}
    return {**document, "nodes": nodes, "notes": [*notes, starting_note]}


def _run_with_connection(work_with_runs: "Callable[[Runs, Server], Awaitable[int]]", output: Output) -> int:
    settings = command_settings()

    async def work(_: InterruptHandling) -> int:
        async with open_read_connection(settings, output) as connection:
            return await work_with_runs(namespace_runs(connection, settings), connection.server)

    return run_async(work, output)


def _table(runs: Sequence[RunSummary]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    has_sessions = any(run.session_id is not None for run in runs)
    for name in ("run", "state", "title", "started", "duration", "nodes", *(("session",) if has_sessions else ())):
        table.add_column(name, overflow="fold")
    for run in runs:
        started_s = run.started_at.timestamp() if run.started_at is not None else None
        duration_s = run.ended_at.timestamp() - (started_s or 0.0) if run.ended_at is not None else None
        table.add_row(
            Text(run.run_id),
            Text(run.status.replace("_", " "), style=RUN_STYLES.get(run.status, "red")),
            Text(one_line(run.title or "", limit=60)),
            local_date_time(started_s) if started_s is not None else "",
            format_elapsed_time(duration_s) if duration_s is not None else "",
            f"{run.nodes_done:,}/{run.nodes_total:,}",
            *((Text(one_line(run.session_id or "", limit=60)),) if has_sessions else ()),
        )
    return table


def _print_status(
    view: "RunView", document: Document, output: Output, *, url: str | None, lists_all_items: bool = False
) -> None:
    """Write the nodes of a run as a table, then its requests, answers, usage, error and notes."""
    output.print(append_link(summary_line(view, document), url))
    for line in filter(None, [phase_line(document, is_closed=view.is_closed), *reason_lines(document)]):
        output.print(line)
    _print_nodes(view, document, output, lists_all_items=lists_all_items)
    for request in document["waiting_for"][:_REQUESTS_SHOWN]:
        deadline = deadline_text(request, now=time.time())
        output.print(f"{request_line(request)}{f' ({deadline})' if deadline else ''}")
        for line in detail_lines(request):
            output.print(f"  {line}")
        output.print(f"  {answer_command(request)}")
    if (omitted := len(document["waiting_for"]) - _REQUESTS_SHOWN) > 0:
        output.print(f"and {omitted:,} more requests; `dagwright status {one_line(view.run_id)} --json` lists all")
    for line in found_entity_lines(document.get("lookups", [])):
        output.print(line)
    if view.is_closed:
        _print_answers(view, output)
    for line in usage_lines(document):
        output.print(line)
    print_run_error(document, output)
    for note in document["notes"]:
        output.print(f"note: {one_line(note['message'], limit=1_000)}")


def _print_nodes(view: "RunView", document: Document, output: Output, *, lists_all_items: bool) -> None:
    """Write the table of nodes, with the rows of large maps that `status_rows` selects."""
    table = Table(box=None, show_header=True, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("", "node", "tool", "attempts", f"time ({zone_at(time.time())})", ""):
        table.add_column(name, overflow="fold")
    rows = status_rows(document["nodes"], lambda task_id: _node_id_of(view, task_id), lists_all_items=lists_all_items)
    for line in rows.count_lines:
        output.print(line)
    for task_id in rows.task_ids:
        node = document["nodes"][task_id]
        status = node_status(node)
        mark, style = MARKS[status]
        call = view.pending_calls.get(task_id) if node["status"] == "running" else None
        call_state = call_text(call, now=time.time()) if call is not None else ""
        table.add_row(
            Text(f"{mark} {status.value}", style=style),
            Text(one_line(task_id)),
            Text(one_line(node_tool_text(node["tool"] or "", node["title"], kind=_kind_of(view, task_id)))),
            str(max(node["attempts"], call.attempt if call is not None else 0) or ""),
            _time_text(node),
            Text(one_line("; ".join(filter(None, [call_state, node_text(node), manual_changes_text(node)])))),
        )
    if document["nodes"]:
        output.show(table)
    if rows.omitted_count:
        command = f"dagwright status {one_line(view.run_id)} --all-items"
        output.print(f"{rows.omitted_count:,} items are not listed; `{command}` lists them")


def _print_answers(view: "RunView", output: Output) -> None:
    """Write the answers to the requests of a run."""
    closings = view.scheduler.features.feedback.requests.closed.items() if view.scheduler is not None else ()
    answers = [(request_id, closing) for request_id, closing in closings if closing.outcome != "closed"]
    for request_id, closing in answers[:_REQUESTS_SHOWN]:
        output.print(f"{one_line(request_id)}: {one_line(closing_text(closing.to_json()), limit=300)}")
    if len(answers) > _REQUESTS_SHOWN:
        output.print(
            f"and {len(answers) - _REQUESTS_SHOWN:,} more answers; `dagwright explain {one_line(view.run_id)}"
            " --node N` shows the answers of a node"
        )


def _node_id_of(view: "RunView", task_id: str) -> str:
    """Return the ID of the node that a task ID of the document belongs to: the node itself, or the map of an item."""
    if view.scheduler is None or view.scheduler.record_of(task_id) is None:
        return task_id
    return view.scheduler.state.node_of(task_id).id


def _kind_of(view: "RunView", task_id: str) -> str:
    """Return the kind of a node or item; `tool` for nodes outside the plan of the run."""
    is_node = view.scheduler is not None and view.scheduler.record_of(task_id) is not None
    return view.scheduler.state.node_of(task_id).kind if is_node and view.scheduler is not None else "tool"


def _print_node(node_id: str, node: Mapping[str, Any], notes: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Write the facts about a node, one per line, and its result at the end."""
    title = f" ({one_line(node['title'])})" if node["title"] else ""
    output.print(f"{one_line(node_id)}{title}: {node_status(node).value}")
    error, cache_entry, reuse = node["error"] or {}, node["lineage"].get("cached"), node["lineage"].get("reused")
    facts = {
        "run": node.get("run_id"),
        "tool": node["tool"],
        "agent": node["lineage"].get("agent"),
        "attempts": node["attempts"] or None,
        "items": item_text(node),
        "started": node["started_at"] and local_date_time(parse_time(node["started_at"])),
        "ended": node["ended_at"] and local_date_time(parse_time(node["ended_at"])),
        "from the cache": cache_entry and _cache_text(cache_entry),
        "reused from": reuse and f"{reuse['node_id']} of the run {reuse['run_id']}",
        "needs": ", ".join(node["lineage"]["inputs"]),
        "manual": "; ".join(map(override_text, node["lineage"].get("overrides", ()))),
        "decided": "; ".join(map(closing_text, node["lineage"].get("answers", ()))),
        "waits for" if node["status"] == "waiting" else "because": (node["reason"] or "").removeprefix("waits for "),
        "error": f"{error['code']}: {node_text(node)}" if error and "traceback" not in error else None,
        "blocked by": ", ".join(node["blocked_by"]),
        "partial": "yes" if node["partial"] else None,
        "message": node.get("message"),
        **lineage_texts(node["lineage"]),
        "used": usage_text(node["usage"]) if "usage" in node else None,
    }
    for name, fact in facts.items():
        if fact:
            output.print(f"{name}: {one_line(str(fact), limit=10_000)}")
    if "traceback" in error:
        # A traceback has several lines.
        output.print(terminal_text(f"error: {error['code']}: {error['message']}\n{error['traceback']}".rstrip()))
    for failure in node.get("failed_items", ()):
        output.print(one_line(failed_items_text(failure), limit=10_000))
    for note in notes:
        output.print(f"note: {one_line(note['message'], limit=1_000)}")
    if node["status"] == "completed":
        output.print(terminal_text(_result_text(node["result"])))


def _result_text(result: Any) -> str:
    """Return the text of a result; for an object with multi-line texts, field by field."""
    if not isinstance(result, Mapping) or not any(
        isinstance(value, str) and "\n" in value for value in result.values()
    ):
        return indented_value_text(result)
    texts = [(name, indented_value_text(value)) for name, value in result.items()]
    return "\n".join(f"{name}:\n{text}" if "\n" in text else f"{name}: {text}" for name, text in texts)


def _cache_text(cache_entry: Mapping[str, Any]) -> str:
    made_at = local_date_time(parse_time(cache_entry["made_at"]))
    return f"made {made_at} by {cache_entry['node_id']} of the run {cache_entry['run_id']}"


def _time_text(node: Mapping[str, Any]) -> str:
    if node["started_at"] is None:
        return ""
    start_text = local_time(parse_time(node["started_at"]))
    return f"{start_text} – {local_time(parse_time(node['ended_at']))}" if node["ended_at"] else start_text
