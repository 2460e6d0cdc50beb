"""Limits of calls across all runs: per tool, model, owner and template."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagwright.client.errors import CommandRejected
from dagwright.core.model.call_limits import CallLimitInvalid, Subject, parse_limit, parse_subject
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.name_hints import suggestion
from dagwright.server import call_limits as server_limits
from dagwright.store import PayloadStore
from dagwright.toolset.tool_directory import find_tool

if TYPE_CHECKING:
    from dagwright.client.services import Services


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of calls across all runs.

    Args:
        subject: tool, model, owner or template that it applies to, such as `tool:http_request`.
        limit: its text, such as `20/s concurrency=5`; `None` if the calls are only held.
        is_declared: whether workers declare it; otherwise it was set at run time.
        by: person who set it, if given.
        running: calls that run with a lease; only a concurrency limit has leases. `None` if the limit does not respond.
        waiting: estimated number of calls that wait; `None` if the limit does not respond.
        today: usage of the daily budget, such as `tokens: 48,210 of 50,000 used today`.
        held: why no call may start now, such as `was asked to wait until … (429 from api.example.org)`.
    """

    subject: str
    limit: str | None
    is_declared: bool
    by: str | None = None
    running: int | None = None
    waiting: int | None = None
    held: str | None = None
    today: str | None = None


async def set_limit(
    services: "Services", subject: str, limit: str, known: Mapping[str, ToolDeclaration], *, by: str | None
) -> None:
    """Set a limit at run time; it overrides the limit that workers declare.

    Args:
        known: tools of the client.

    Raises:
        CommandRejected: the subject or the limit is invalid.
    """
    queue = services.settings.task_queue
    try:
        parsed, checked = parse_limit(limit), await check_subject(subject, known, services.store, task_queue=queue)
        await server_limits.set_limit(services.connection.client, checked, parsed, task_queue=queue, by=by)
    except CallLimitInvalid as error:
        raise CommandRejected(str(error)) from None


async def remove_limit(services: "Services", subject: str) -> None:
    """Remove a limit that was set at run time, or else one that workers declare.

    After the first, a declared limit applies again; a removed declared limit returns if a worker still declares it.

    Raises:
        CommandRejected: there is no such limit.
    """
    try:
        before = await server_limits.remove_limit(services.connection.client, parse_subject(subject))
    except CallLimitInvalid as error:
        raise CommandRejected(str(error)) from None
    if before is None:
        raise CommandRejected(f"{subject!r:.80} has no limit")


async def read_limits(services: "Services") -> list[Limit]:
    """Return all limits with their use, by subject."""
    return [limit_of(use) for use in await server_limits.list_uses(services.connection.client)]


def limit_of(use: server_limits.LimitUse) -> Limit:
    """Return a limit with its use."""
    settings = use.settings
    return Limit(
        str(settings.subject),
        None if settings.limit is None else str(settings.limit),
        is_declared=settings.chosen is None and settings.declared is not None,
        by=settings.by if settings.chosen is not None else None,
        running=use.running,
        waiting=use.waiting,
        held=use.held,
        today=use.used_up or use.today,
    )


async def check_subject(
    text: str, known: Mapping[str, ToolDeclaration], store: PayloadStore, *, task_queue: str
) -> Subject:
    """Parse the subject of a limit, and check that a tool exists and can be limited.

    Raises:
        CallLimitInvalid: it is invalid, or there is no such tool, or its calls cannot wait.
    """
    subject = parse_subject(text)
    if subject.kind != "tool":
        return subject
    declared = await find_tool(known, store, subject.name, task_queue=task_queue)
    if declared is None:
        hint = suggestion(subject.name, known) or "start a worker that has it"
        raise CallLimitInvalid(f"there is no tool {subject.name!r}; {hint}")
    if declared.effects is Effects.PURE:
        raise CallLimitInvalid(f"{subject.name!r} cannot be limited: it is pure, so it calls no service")
    if declared.is_foreign:
        raise CallLimitInvalid(f"{subject.name!r} cannot be limited: a worker of another application serves it")
    return subject
