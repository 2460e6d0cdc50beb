"""`inbox`: the open requests of all runs."""

import time
from collections.abc import Iterable, Sequence

from dagwright.client.feedback import People
from dagwright.core.boundary import wire
from dagwright.core.model.times import parse_duration, seconds_of
from dagwright.interfaces.cli.async_runs import Farewell, run_async
from dagwright.interfaces.cli.background import STARTING_MESSAGE, is_worker_starting
from dagwright.interfaces.cli.connecting import command_settings, connected_to_read
from dagwright.interfaces.cli.exits import CommandRefused, ExitCode
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.request_words import (
    ANYONE,
    Request,
    age_words,
    answer_words,
    asked_of,
    deadline_words,
    question_lines,
)
from dagwright.interfaces.cli.requests import InboxRequest
from dagwright.interfaces.cli.wording import counted
from dagwright.server import Connection
from dagwright.server.pollers import has_pollers
from dagwright.settings import Settings


def inbox(request: InboxRequest, output: Output) -> int:
    """List the open requests of all runs, oldest first; the exit code is 0.

    Raises:
        CommandRefused: `--older-than` is not a duration.
    """
    settings = command_settings()
    older_than_s = _seconds(request.older_than)

    async def work(_: Farewell) -> int:
        async with connected_to_read(settings, output) as connection:
            found = [one.document for one in await People(connection).inbox()]
            note = await worker_note(connection, settings)
        now = time.time()
        wanted = [*chosen(found, request, older_than_s=older_than_s, now=now)]
        if output.is_json:
            output.document(wanted)
        elif wanted:
            for line in inbox_lines(wanted, now=now):
                output.say(line)
        else:
            output.say("no open request matches" if found else "there are no open requests")
        if note is not None:
            output.tell(f"note: {note}")
        return ExitCode.COMPLETED

    return run_async(work, output)


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


def chosen(requests: Iterable[Request], wanted: InboxRequest, *, older_than_s: float, now: float) -> Iterable[Request]:
    """Yield the requests that match the options."""
    for request in requests:
        is_theirs = wanted.assignee in (None, request["assignee"] or ANYONE)
        is_old = now - seconds_of(request["opened_at"]) >= older_than_s
        if is_theirs and is_old and wanted.type in (None, request["type"]):
            yield request


def inbox_lines(requests: Sequence[Request], *, now: float) -> list[str]:
    """Return three lines for each request: place and assignee, question, and the command that answers it."""
    lines = []
    for request in requests:
        facts = [
            f"{request['type']} for {asked_of(request)}",
            f"open for {age_words(request, now=now)}",
            deadline_words(request, now=now),
        ]
        lines.append(
            f"{one_line(request['run_id'])}  {one_line(request['request_id'])}  {', '.join(filter(None, facts))}"
        )
        lines += [f"  {line}" for line in question_lines(request)]
        lines.append(f"  {answer_words(request)}")
    return lines


def _seconds(duration: str | None) -> float:
    if duration is None:
        return 0.0
    try:
        return parse_duration(duration).total_seconds()
    except ValueError as error:
        raise CommandRefused(f"--older-than: {error}") from None
