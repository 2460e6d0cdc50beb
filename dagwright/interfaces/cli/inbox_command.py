"""`inbox`: the open requests of all runs."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from dagwright.client.feedback.inbox import MATCH_EVERY_REQUEST, InboxFilter, InboxPage, read_nonempty_inbox_page
from dagwright.core.boundary import wire
from dagwright.core.text import format_count
from dagwright.interfaces.cli.background import STARTING_MESSAGE, is_worker_starting
from dagwright.interfaces.cli.command_arguments import seconds_of_option
from dagwright.interfaces.cli.command_connection import (
    command_settings,
    next_page_field,
    open_read_connection,
    parse_cursor,
)
from dagwright.interfaces.cli.command_loop import InterruptHandling, run_async
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode, ExitCode
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.people_commands import InboxArguments
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

_POLL_INTERVAL_S: Final = 1.0
"""Interval between two reads with `--wait`; the visibility store of the server also lags by about a second."""


def inbox(arguments: InboxArguments, output: Output) -> int:
    """List the open requests of all runs, oldest first; the exit code is 0.

    Raises:
        CommandError: `--older-than` or `--wait` is not a duration, `--after` is not a cursor, or no request has
            arrived within `--wait`.
    """
    settings = command_settings()
    min_age_s = seconds_of_option("--older-than", arguments.older_than)
    wait_s = seconds_of_option("--wait", arguments.wait)
    after = parse_cursor(arguments.after)

    async def work(_: InterruptHandling) -> int:
        async with open_read_connection(settings, output) as connection:

            async def read_page() -> InboxPage:
                return await read_nonempty_inbox_page(
                    connection, limit=arguments.limit, inbox_filter=_filter(arguments, min_age_s), after=after
                )

            page = await read_page() if wait_s is None else await wait_for_requests(read_page, timeout_s=wait_s)
            note = await worker_note(connection, settings)
        is_timed_out = wait_s is not None and not page.requests
        if not is_timed_out:
            _print_page(page, output, is_filtered=_filter(arguments, min_age_s) != MATCH_EVERY_REQUEST)
        if note is not None:
            output.log(f"note: {note}")
        if is_timed_out:
            raise CommandError(_no_request_message(arguments), code=CommandErrorCode.NO_REQUEST)
        return ExitCode.COMPLETED

    return run_async(work, output)


def _filter(arguments: InboxArguments, min_age_s: float | None) -> InboxFilter:
    opened_before = None if min_age_s is None else time.time() - min_age_s
    return InboxFilter(
        run_id=arguments.run_id, assignee=arguments.assignee, type=arguments.type, opened_before=opened_before
    )


async def wait_for_requests(read_page: Callable[[], Awaitable[InboxPage]], *, timeout_s: float) -> InboxPage:
    """Read the inbox until it has requests or the timeout is over; return the last page."""
    deadline = time.monotonic() + timeout_s
    while not (page := await read_page()).requests and (remaining_s := deadline - time.monotonic()) > 0:
        await asyncio.sleep(min(_POLL_INTERVAL_S, remaining_s))
    return page


def _no_request_message(arguments: InboxArguments) -> str:
    run_id = "ID" if arguments.run_id is None else one_line(arguments.run_id)
    return f"no request has arrived within {arguments.wait}; `dagwright explain {run_id}` shows why a run waits"


def _print_page(page: InboxPage, output: Output, *, is_filtered: bool) -> None:
    requests = [request.document for request in page.requests]
    if output.is_json:
        omitted_runs = [{"run_id": run_id, "count": count} for run_id, count in page.omitted.items()]
        output.document({"requests": requests, "omitted": omitted_runs, **next_page_field(page.cursor)})
        return
    for line in inbox_lines(requests, now=time.time()):
        output.print(line)
    if not requests:
        output.print("no open request matches" if is_filtered else "there are no open requests")
    for line in _omitted_lines(page):
        output.log(line)


def _omitted_lines(page: InboxPage) -> list[str]:
    """Return lines about requests that are not on the page."""
    lines = [
        f"the run {one_line(run_id)} has {format_count(count, 'more request')}; "
        f"`dagwright status {one_line(run_id)} --json` lists all"
        for run_id, count in page.omitted.items()
    ]
    more_text = f"there are more requests; continue with `--after {page.cursor}`"
    return [*lines, more_text] if page.cursor is not None else lines


async def worker_note(connection: Connection, settings: Settings) -> str | None:
    """Return a note if runs are open but no worker serves them.

    Such runs open no requests until a worker serves them, so the inbox may be incomplete.
    """
    client, queue = connection.client, settings.task_queue
    if await has_pollers(client, queue):
        return None
    query = f"{wire.RUN_WORKFLOWS_FILTER} AND ExecutionStatus = 'Running'"
    open_count = (await client.count_workflows(query)).count
    if not open_count:
        return None
    if is_worker_starting(settings):
        return f"{STARTING_MESSAGE}; repeat the command in a moment"
    return (
        f"no worker serves {format_count(open_count, 'open run')}: they open no requests and apply no answers "
        "until `dagwright up` or `dagwright watch ID` starts a worker"
    )


def inbox_lines(requests: Sequence[Request], *, now: float) -> list[str]:
    """Return lines for each request: a line with run, request and assignee, the question, and the answer command."""
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
