"""`session`: list, show and end sessions, without a worker."""

from collections.abc import Sequence
from dataclasses import replace

from rich.table import Table
from rich.text import Text

from dagwright.client.list_cursors import ListCursor
from dagwright.client.runs import namespace_runs
from dagwright.client.sessions import Sessions, SessionView
from dagwright.core.model.times import parse_time
from dagwright.interfaces.cli.command_connection import (
    command_settings,
    next_page_field,
    open_read_connection,
    parse_cursor,
)
from dagwright.interfaces.cli.command_loop import InterruptHandling, run_async
from dagwright.interfaces.cli.exit_codes import CommandError, ExitCode
from dagwright.interfaces.cli.goal_commands import SessionArguments
from dagwright.interfaces.cli.node_text import local_date_time
from dagwright.interfaces.cli.output import Output, append_link, one_line
from dagwright.protocol.sessions import Turn, normalized_session_name
from dagwright.server import Server

_TURNS_SHOWN = 20


def session(arguments: SessionArguments, output: Output) -> int:
    """Show a session, end it, or list the newest sessions.

    Raises:
        CommandError: `--end` is given without a session, or `--after` is not a cursor.
        SessionIdInvalid: the ID is invalid.
        SessionNotFound: the session does not exist.
    """
    if arguments.is_ending and arguments.session_id is None:
        raise CommandError("--end needs the ID of a session")
    session_name = normalized_session_name(arguments.session_id) if arguments.session_id is not None else None
    settings, after = command_settings(), parse_cursor(arguments.after)

    async def work(_: InterruptHandling) -> int:
        async with open_read_connection(settings, output) as connection:
            sessions = Sessions(connection, namespace_runs(connection, settings), task_queue=settings.task_queue)
            if session_name is None:
                _print_sessions(*await sessions.page_of_sessions(after=after), output)
            elif arguments.is_ending:
                message = await sessions.end(session_name)
                if output.is_json:
                    output.document({"session_id": session_name, "ok": True, "message": message})
                output.print(f"the session {one_line(session_name)} {message}")
            else:
                view = await sessions.find(session_name)
                _print_session(
                    replace(view, session=await sessions.with_full_answers(view.session)), output, connection.server
                )
        return ExitCode.COMPLETED

    return run_async(work, output)


def _print_sessions(views: Sequence[SessionView], cursor: ListCursor | None, output: Output) -> None:
    if output.is_json:
        output.document({"sessions": [view.to_list_entry() for view in views], **next_page_field(cursor)})
        return
    if cursor is not None:
        output.log(f"there are more sessions; continue with `--after {cursor}`")
    if not views:
        output.print("there are no sessions; `dagwright ask … --session NAME` starts one")
        return
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("session", "state", "turns", "last request", "started"):
        table.add_column(name, overflow="fold")
    for entry in (view.to_list_entry() for view in views):
        start_text = local_date_time(parse_time(entry["started_at"])) if entry["started_at"] else ""
        request = Text(one_line(entry["last_request"] or "", limit=60))
        table.add_row(
            Text(one_line(entry["session_id"])), entry["status"], f"{entry['turn_count']:,}", request, start_text
        )
    output.show(table)


def _print_session(view: SessionView, output: Output, server: Server) -> None:
    document = view.to_json()
    if output.is_json:
        output.document(document)
        return
    url = server.run_url(view.workflow_id, execution_id=view.execution_id)
    output.print(append_link(f"session {one_line(document['session_id'])}: {document['status']}", url))
    for name, entity in document["context"].items():
        kind_text = f"{entity['kind']}, " if entity.get("kind") else ""
        output.print(one_line(f"@{name}: {entity.get('name') or entity['id']} ({kind_text}{entity['id']})"))
    for lookup in document["lookups"]:
        entity = lookup["entity"]
        output.print(
            one_line(f"{lookup['search_text']!r} is {entity.get('name') or entity.get('id')} ({entity.get('id')})")
        )
    omitted = document["omitted_turns"] + max(0, len(document["turns"]) - _TURNS_SHOWN)
    if omitted:
        output.print(f"{omitted:,} older turns are not shown")
    for line in turn_lines(view.session.turns[-_TURNS_SHOWN:]):
        output.print(line)


def turn_lines(turns: Sequence[Turn]) -> list[str]:
    """Return two lines for each turn: the request, and its outcome."""
    lines = []
    for turn in turns:
        status = turn.status.replace("_", " ")
        text = turn.outcome or turn.explanation
        outcome = f"{status}: {text}" if text else status
        lines += [one_line(f"{turn.number}. {turn.request or '(a plan)'}"), one_line(f"   {turn.run_id}: {outcome}")]
    return lines
