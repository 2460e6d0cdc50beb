"""`list`, `status`, `result`, `graph`, `node`: look at runs, from their history, with no worker."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any
from unicodedata import normalize

from rich.table import Table
from rich.text import Text

from dagwright.cli.async_runs import Farewell, run_async
from dagwright.cli.connecting import command_settings, connected_to_read
from dagwright.cli.drawing import mermaid, svg
from dagwright.cli.endings import summary_line, tell_result, tell_run_error
from dagwright.cli.exits import CommandRefused, ExitCode, exit_code_of
from dagwright.cli.folding import is_folded, picture_of
from dagwright.cli.output import Output, one_line, terminal_text, value_text, with_link
from dagwright.cli.progress import format_duration
from dagwright.cli.rendering import MARKS, RUN_STYLES
from dagwright.cli.requests import LookRequest
from dagwright.cli.streaming import Elements
from dagwright.cli.wording import item_words, local_date, local_time, node_words, seconds_of, what_words
from dagwright.client import Runs, RunSummary, open_runs
from dagwright.contracts.limits import child_workflow_id
from dagwright.feed import RunView
from dagwright.graph_listing import GraphListing
from dagwright.insides import INSIDE_UNREADABLE
from dagwright.plan.states import NodeStatus
from dagwright.server import Server

Document = Mapping[str, Any]


def list_runs(limit: int, output: Output) -> int:
    """Lists the newest runs; always 0."""

    async def look(runs: Runs, server: Server) -> int:
        found = await runs.list_runs(limit=limit)
        if output.is_json:
            output.document([run.to_json() for run in found])
        elif found:
            output.show(_table(found))
            if url := server.runs_url():
                output.say(f"Temporal UI: {url}")
        else:
            output.say("there are no runs here yet")
        return ExitCode.COMPLETED

    return _look(look, output)


def status(request: LookRequest, output: Output) -> int:
    """Shows how a run is doing; the exit code is that of the run, 0 while it goes on."""

    def show(view: RunView, document: Document, server: Server) -> int:
        if output.is_json:
            output.document(document)
        else:
            _tell_status(view, document, output, url=server.run_url(view.workflow_id, run_id=view.run_id))
        return exit_code_of(view.status)

    return _read(request, output, show)


def result(request: LookRequest, output: Output) -> int:
    """Shows what a run made; the exit code is that of the run, 0 while it goes on."""
    if request.is_full and output.is_json:
        return _stream_result(request, output)

    def show(view: RunView, document: Document, _: Server) -> int:
        if output.is_json:
            output.document(document)
        else:
            tell_result(view, document, output)
        return exit_code_of(view.status)

    return _read(request, output, show)


def _stream_result(request: LookRequest, output: Output) -> int:
    """Writes the document with every node and every value, which may be too large for the memory."""

    async def look(runs: Runs, _: Server) -> int:
        view = await runs.feed(request.workflow_id).read()
        await output.stream(runs.full_document(view))
        return exit_code_of(view.status)

    return _look(look, output)


def graph(request: LookRequest, output: Output) -> int:
    """Draws the graph of a run with its states; 0 whatever became of the run."""

    async def look(runs: Runs, _: Server) -> int:
        view = await runs.feed(request.workflow_id).read()
        if request.format == "json":
            await output.stream(_graph_parts(runs.graph(view)))
        else:
            _draw(view, request.format, output)
        return ExitCode.COMPLETED

    return _look(look, output)


async def _graph_parts(listing: GraphListing) -> AsyncIterator[tuple[str, Any]]:
    yield "nodes", Elements(listing.nodes())
    yield "edges", Elements(listing.edges())
    if listing.notes:
        yield "notes", listing.notes


def _draw(view: RunView, drawing: str, output: Output) -> None:
    """Writes a picture of a run: of one with many nodes, boxes that stand for several."""
    picture = picture_of(view.scheduler) if view.scheduler else view.graph()
    output.say((svg if drawing == "svg" else mermaid)(picture))
    if is_folded(picture) and view.scheduler:
        total, run = view.scheduler.counts().total(), one_line(view.workflow_id)
        boxes = f"{len(picture['nodes']):,} box{'es' if len(picture['nodes']) > 1 else ''}"
        output.tell(
            f"{total:,} nodes are drawn as {boxes}; `dagwright graph {run} --format json` lists every node and edge, "
            f"`dagwright node {run} NODE` tells all of one"
        )


def node(request: LookRequest, output: Output) -> int:
    """Shows one node or item; 0 whatever became of it.

    Raises:
        CommandRefused: the run has no such node.
    """

    def show(view: RunView, document: Document, _: Server) -> int:
        wanted = normalize("NFC", request.node)
        found = document["nodes"].get(wanted)
        if found is None:
            for note in document["notes"]:
                if note["code"] == INSIDE_UNREADABLE:
                    # Whether there is such a node is not known.
                    raise CommandRefused(f"{wanted!r} is not told: {note['message']}", status="not_found")
            raise CommandRefused(_no_node(view, document, wanted), status="not_found")
        if output.is_json:
            output.document({"id": wanted, **found})
        else:
            _tell_node(wanted, found, document["notes"], output)
        return ExitCode.COMPLETED

    return _read(request, output, show)


def _no_node(view: RunView, document: Document, wanted: str) -> str:
    """Returns why there is nothing to show of a node or item, and where to look instead."""
    for name, found in document["nodes"].items():
        record = view.scheduler.record_of(name) if view.scheduler is not None else None
        if "items" in found and wanted.startswith(f"{name}[") and record is not None:
            first = child_workflow_id(view.workflow_id, f"{name}[{record.items[0].key}]")
            return f"the items of {name!r} are in runs of their own; look at those: {first!r} has the first of them"
    near = get_close_matches(wanted, list(document["nodes"]), 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"the run {view.workflow_id!r} has no node {wanted!r}{hint}"


def _read(request: LookRequest, output: Output, show: Callable[[RunView, Document, Server], int]) -> int:
    """Looks at a run with its values, those of the payload store too."""

    async def look(runs: Runs, server: Server) -> int:
        view = await runs.feed(request.workflow_id).read()
        document = await runs.document(view, full=request.is_full, only=request.node or None)
        return show(view, document, server)

    return _look(look, output)


def _look(look: Callable[[Runs, Server], Awaitable[int]], output: Output) -> int:
    settings = command_settings()

    async def work(_: Farewell) -> int:
        async with connected_to_read(settings, output) as connection:
            return await look(open_runs(connection, settings), connection.server)

    return run_async(work, output)


def _table(runs: Sequence[RunSummary]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("run", "state", "title", "started", "took", "nodes"):
        table.add_column(name, overflow="fold")
    for run in runs:
        took = (run.ended_at or 0.0) - (run.started_at or 0.0)
        table.add_row(
            Text(run.workflow_id),
            Text(run.status.replace("_", " "), style=RUN_STYLES.get(run.status, "red")),
            Text(one_line(run.title or "", limit=60)),
            local_date(run.started_at) if run.started_at is not None else "",
            format_duration(took) if run.ended_at else "",
            f"{run.nodes_done:,}/{run.nodes_total:,}",
        )
    return table


def _tell_status(view: RunView, document: Document, output: Output, *, url: str | None) -> None:
    """Shows a run as a table of its nodes."""
    output.say(with_link(summary_line(view, document), url))
    table = Table(box=None, show_header=True, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("", "node", "tool", "attempts", "time", ""):
        table.add_column(name, overflow="fold")
    for name, node in document["nodes"].items():
        mark, style = MARKS[NodeStatus(node["status"])]
        table.add_row(
            Text(f"{mark} {node['status']}", style=style),
            Text(one_line(name)),
            Text(one_line(what_words(node["tool"] or "", node["title"]))),
            str(node["attempts"] or ""),
            _clock(node),
            Text(one_line(node_words(node))),
        )
    if document["nodes"]:
        output.show(table)
    tell_run_error(document, output)
    for note in document["notes"]:
        output.say(f"note: {one_line(note['message'])}")


def _tell_node(node_id: str, node: Mapping[str, Any], notes: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Shows all that is known of a node, a line for each thing, its result last."""
    title = f" ({one_line(node['title'])})" if node["title"] else ""
    output.say(f"{one_line(node_id)}{title}: {node['status']}")
    error, cached = node["error"] or {}, node["lineage"].get("cached")
    facts = {
        "tool": node["tool"],
        "attempts": node["attempts"] or None,
        "items": item_words(node),
        "started": node["started_at"] and local_date(seconds_of(node["started_at"])),
        "ended": node["ended_at"] and local_date(seconds_of(node["ended_at"])),
        "from the cache": cached and _cached_words(cached),
        "needs": ", ".join(node["lineage"]["inputs"]),
        "waits for" if node["status"] == "waiting" else "because": node["reason"],
        "error": f"{error['code']}: {node_words(node)}" if error and "traceback" not in error else None,
        "blocked by": ", ".join(node["blocked_by"]),
        "partial": "yes" if node["partial"] else None,
    }
    for name, fact in facts.items():
        if fact:
            output.say(f"{name}: {one_line(str(fact), limit=10_000)}")
    if "traceback" in error:
        # Too long for a line, and its lines are its own.
        output.say(terminal_text(f"error: {error['code']}: {error['message']}\n{error['traceback']}".rstrip()))
    for note in notes:
        if note["node"] == node_id or (note["code"] == "no_worker" and node["status"] == "waiting"):
            output.say(f"note: {one_line(note['message'])}")
    if node["status"] == "completed":
        output.say(terminal_text(value_text(node["result"])))


def _cached_words(cached: Mapping[str, Any]) -> str:
    made = local_date(seconds_of(cached["made_at"]))
    return f"made {made} by {cached['node']} of the run {cached['workflow_id']}"


def _clock(node: Mapping[str, Any]) -> str:
    if node["started_at"] is None:
        return ""
    started = local_time(seconds_of(node["started_at"]))
    return f"{started} – {local_time(seconds_of(node['ended_at']))}" if node["ended_at"] else started
