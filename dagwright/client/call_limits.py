"""Limits of calls across all runs: per tool, model, owner and template."""

from dataclasses import dataclass

from temporalio.client import Client as TemporalClient

from dagwright.client.errors import CommandRejected, OptionInvalid
from dagwright.client.service_tools import KnownTools
from dagwright.core.model.call_limits import CallLimitInvalid, parse_limit, parse_subject
from dagwright.server import call_limits as server_limits


class NoSuchLimit(CommandRejected):
    """The subject has no limit."""


@dataclass(frozen=True, slots=True)
class RemovedLimit:
    """A limit that was removed.

    Args:
        declared_limit: declared limit that applies now; `None` without a declared limit.
    """

    subject: str
    limit: str
    declared_limit: str | None


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of calls across all runs.

    Args:
        subject: tool, model, owner or template that the limit applies to, such as `tool:http_request`.
        limit: text of the limit, such as `20/s concurrency=5`; `None` if the subject's calls
            are on hold but not limited.
        is_declared: whether workers declare the limit; otherwise the limit was set at run time.
        by: person who set the limit at run time, if known.
        running: number of running calls that hold a lease; only a concurrency limit has leases. `None` if the
            workflow of the limit does not respond.
        waiting: estimated number of calls that wait; `None` if the workflow of the limit does not respond.
        daily_usage: usage of the daily budget, such as `tokens: 48,210 of 50,000 used today`.
        hold_reason: why no call may start now, such as `was asked to wait until … (429 from api.example.org)`.
    """

    subject: str
    limit: str | None
    is_declared: bool
    by: str | None = None
    running: int | None = None
    waiting: int | None = None
    hold_reason: str | None = None
    daily_usage: str | None = None


async def set_limit(client: TemporalClient, subject: str, limit: str, tools: KnownTools, *, by: str | None) -> Limit:
    """Set a limit at run time; the new limit overrides the limit that workers declare.

    Returns:
        The new limit, without its current usage.

    Raises:
        OptionInvalid: the subject or the limit is invalid.
        CommandRejected: there is no such tool, or calls of the tool cannot wait.
    """
    try:
        parsed_limit, parsed_subject = parse_limit(limit), parse_subject(subject)
    except CallLimitInvalid as error:
        raise OptionInvalid(str(error)) from None
    if parsed_subject.kind == "tool":
        await tools.check_service_tool("limited", parsed_subject.name)
    previous_settings = await server_limits.set_limit(
        client, parsed_subject, parsed_limit, task_queue=tools.task_queue, by=by
    )
    return limit_of(server_limits.LimitUsage(previous_settings.apply_change({"override": str(parsed_limit), "by": by})))


async def remove_limit(client: TemporalClient, subject: str) -> RemovedLimit:
    """Remove the limit that was set at run time; then the declared limit applies again.

    If no limit was set at run time, remove the declared limit; this limit applies again as soon as a worker declares
    it.

    Raises:
        OptionInvalid: the subject is invalid.
        NoSuchLimit: the subject has no limit.
    """
    try:
        parsed_subject = parse_subject(subject)
    except CallLimitInvalid as error:
        raise OptionInvalid(str(error)) from None
    settings = await server_limits.remove_limit(client, parsed_subject)
    if settings is None:
        raise NoSuchLimit(f"{parsed_subject} has no limit")
    declared_limit = (
        None if settings.override is None or settings.declared_limit is None else str(settings.declared_limit)
    )
    return RemovedLimit(str(parsed_subject), str(settings.limit), declared_limit)


async def read_limits(client: TemporalClient) -> list[Limit]:
    """Return all limits with their current usage, by subject."""
    return [limit_of(usage) for usage in await server_limits.list_usages(client)]


def limit_of(usage: server_limits.LimitUsage) -> Limit:
    """Return the public form of a limit and its usage."""
    settings = usage.settings
    return Limit(
        str(settings.subject),
        None if settings.limit is None else str(settings.limit),
        is_declared=settings.override is None and settings.declared_limit is not None,
        by=settings.by if settings.override is not None else None,
        running=usage.running_calls,
        waiting=usage.waiting_calls,
        hold_reason=usage.hold_reason,
        daily_usage=usage.used_up_reason or usage.daily_usage,
    )
