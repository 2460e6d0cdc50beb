"""`inbox`: the open requests of all runs."""

import time
from collections.abc import Sequence

from dagwright.client.inbox import EVERY_REQUEST, InboxFilter, InboxPage, read_requests
from dagwright.core.boundary import wire
from dagwright.core.model.times import parse_duration
from dagwright.core.text import counted
from dagwright.interfaces.cli.async_runs import InterruptHandling, run_async
from dagwright.interfaces.cli.background import STARTING_MESSAGE, is_worker_starting
from dagwright.interfaces.cli.command_arguments import InboxRequest
from dagwright.interfaces.cli.command_connection import command_settings, connected_to_read, next_page, read_cursor
from dagwright.interfaces.cli.exit_codes import CommandRefused, ExitCode
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.request_text import (
    Request,
    age_text,
    answer_command,
    assignee_of,
    deadline_text,
    question_lines,
)
from dagwright.server import Connection
from dagwright.server.pollers import has_pollers
from dagwright.settings import Settings


def inbox(request: InboxRequest, output: Output) -> int:
    """List the open requests of all runs, oldest first; the exit code is 0.

    Raises:
        CommandRefused: `--older-than` is not a duration, or `--after` not a cursor.
    """
    settings = command_settings()
    inbox_filter = InboxFilter(
        assignee=request.assignee, type=request.type, opened_before=_opened_before(request.older_than)
    )
    after = read_cursor(request.after)

    async def work(_: InterruptHandling) -> int:
        async with connected_to_read(settings, output) as connection:
            page = await read_requests(connection, limit=request.limit, inbox_filter=inbox_filter, after=after)
            note = await worker_note(connection, settings)
        requests = [request.document for request in page.requests]
        if output.is_json:
            omitted = [{"run_id": run, "count": count} for run, count in page.omitted.items()]
            output.document({"requests": requests, "omitted": omitted, **next_page(page.cursor)})
        elif requests:
            for line in inbox_lines(requests, now=time.time()):
                output.print(line)
        else:
            output.print("there are no open requests" if inbox_filter == EVERY_REQUEST else "no open request matches")
        for line in () if output.is_json else _lines_beyond(page):
            output.log(line)
        if note is not None:
            output.log(f"note: {note}")
        return ExitCode.COMPLETED

    return run_async(work, output)


def _lines_beyond(page: InboxPage) -> list[str]:
    """Return lines about the requests that the page does not have."""
    lines = [
        f"the run {one_line(run)} has {counted(count, 'more request')}; "
        f"`dagwright status {one_line(run)} --json` lists all"
        for run, count in page.omitted.items()
    ]
    more = f"there are more requests; continue with `--after {page.cursor}`"
    return [*lines, more] if page.cursor is not None else lines


async def worker_note(connection: Connection, settings: Settings) -> str | None:
    """Return why running runs may have unlisted requests; `None` if a worker serves them."""
    client, queue = connection.client, settings.task_queue
    if await has_pollers(client, queue):
        return None
    running = (await client.count_workflows(f"{wire.IS_RUN} AND ExecutionStatus = 'Running'")).count
    if not running:
        return None
    if is_worker_starting(settings):
        return f"{STARTING_MESSAGE}; look again in a moment"
    return (
        f"no worker serves {counted(running, 'running run')}: they open no requests and apply no answers until "
        "`dagwright up` or `dagwright watch ID` starts one"
    )


def inbox_lines(requests: Sequence[Request], *, now: float) -> list[str]:
    """Return three lines for each request: place and assignee, question, and the command that answers it."""
    lines = []
    for request in requests:
        facts = [
            f"{request['type']} for {assignee_of(request)}",
            f"open for {age_text(request, now=now)}",
            deadline_text(request, now=now),
        ]
        lines.append(
            f"{one_line(request['run_id'])}  {one_line(request['request_id'])}  {', '.join(filter(None, facts))}"
        )
        lines += [f"  {line}" for line in question_lines(request)]
        lines.append(f"  {answer_command(request)}")
    return lines


def _opened_before(older_than: str | None) -> float | None:
    try:
        return None if older_than is None else time.time() - parse_duration(older_than).total_seconds()
    except ValueError as error:
        raise CommandRefused(f"--older-than: {error}") from None
