"""`store show`, `store prune`, `store adopt`: show and clean up the payload store, and assign it to a task queue."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.filesize import decimal
from temporalio.client import Client

from dagwright.core.model.times import format_datetime
from dagwright.core.text import format_count
from dagwright.interfaces.cli.command_connection import command_settings, open_read_connection
from dagwright.interfaces.cli.command_loop import InterruptHandling, run_async
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode, ExitCode
from dagwright.interfaces.cli.output import Output
from dagwright.server import ServerUnreachable
from dagwright.server.namespace_retention import read_retention
from dagwright.server.store_notes import StoreIdentity, adopt_store, published_store
from dagwright.settings import Settings
from dagwright.store import PayloadStore, open_store
from dagwright.store.clean_up import (
    Amount,
    CacheUsage,
    RemovalCutoff,
    RetentionUnknown,
    StoreUsage,
    measure_cache,
    measure_payloads,
    removal_cutoff,
    remove_expired_entries,
    remove_payloads,
)


@dataclass(frozen=True, slots=True)
class _StoreReport:
    """Content of the store. `reason` states why values are kept, or why it is unknown which values can be removed."""

    location: str
    usage: StoreUsage
    cache_usage: CacheUsage
    cutoff: RemovalCutoff | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        cutoff, removable = self.cutoff, self.usage.removable
        return {
            "store": self.location,
            **_payloads_json(self.usage.total),
            "oldest": format_datetime(self.usage.oldest_renewed_at),
            "removable": None if removable is None else _payloads_json(removable),
            "renewed_before": None if cutoff is None else format_datetime(cutoff.time),
            "reason": self.reason,
            "cached": {**_cached_json(self.cache_usage.total), "expired": _cached_json(self.cache_usage.expired)},
        }


def show(_: None, output: Output) -> int:
    """Show the content of the store and how much can be removed; the exit code is 0."""
    settings = command_settings()

    async def work(_: InterruptHandling) -> int:
        report = await _store_report(settings, output)
        if output.is_json:
            output.document(report.to_json())
        else:
            _print_report(report, output)
        return ExitCode.COMPLETED

    return run_async(work, output)


def prune(is_confirmed: bool, output: Output) -> int:
    """Remove values that no run can need any more; without `is_confirmed`, only report them.

    Raises:
        CommandError: it is unknown which values runs need; nothing was removed.
    """
    settings = command_settings()

    async def work(_: InterruptHandling) -> int:
        report = await _store_report(settings, output)
        if report.cutoff is None:
            raise CommandError(f"nothing is removed: {report.reason}", code=CommandErrorCode.NEEDED_VALUES_UNKNOWN)
        store = open_store(settings.payload_store, state_dir=settings.state_dir)
        removed_payloads = await remove_payloads(store, report.cutoff) if is_confirmed else Amount()
        removed_entries = await remove_expired_entries(store, now=datetime.now(UTC)) if is_confirmed else Amount()
        if output.is_json:
            status = "cleaned" if is_confirmed else "dry_run"
            output.document(
                {
                    "status": status,
                    "removed": _payloads_json(removed_payloads),
                    "removed_cached": _cached_json(removed_entries),
                    **report.to_json(),
                }
            )
        elif is_confirmed:
            output.print(f"removed from {report.location}: {_payloads_text(removed_payloads)}")
            if removed_entries.count:
                output.print(f"removed expired entries from the cache: {_cached_text(removed_entries)}")
            output.print(_retention_line(report.cutoff))
        else:
            _print_report(report, output)
            if report.usage.removable != Amount() or report.cache_usage.expired.count:
                output.print("nothing was removed; `dagwright store prune --yes` removes these values")
        return ExitCode.COMPLETED

    return run_async(work, output)


def adopt(is_confirmed: bool, output: Output) -> int:
    """Make all workers of the task queue use the store of the settings; without `is_confirmed`, only report."""
    settings = command_settings()

    async def work(_: InterruptHandling) -> int:
        store = open_store(settings.payload_store, state_dir=settings.state_dir)
        store_id = await store.identify()
        async with open_read_connection(settings, output) as connection:
            read_or_adopt = adopt_store if is_confirmed else _read_published_store
            previous_store = await read_or_adopt(connection.client, store, task_queue=settings.task_queue)
        previous_json = (
            None if previous_store is None else {"id": previous_store.store_id, "store": previous_store.location}
        )
        is_same_store = previous_store is not None and previous_store.store_id == store_id
        if output.is_json:
            status = "adopted" if is_confirmed else "dry_run"
            document = {"status": status, "task_queue": settings.task_queue, "store": store.location, "id": store_id}
            output.document({**document, "before": previous_json})
            return ExitCode.COMPLETED
        if previous_store is None:
            previous_text = "no store is published yet"
        else:
            previous_text = f"the previous store was {previous_store.location} (ID {previous_store.store_id})"
        if is_confirmed or is_same_store:
            output.print(f"task queue {settings.task_queue} uses {store.location} (ID {store_id}); {previous_text}")
        else:
            output.print(
                f"`--yes` makes task queue {settings.task_queue} use {store.location} (ID {store_id}); {previous_text}"
            )
        return ExitCode.COMPLETED

    return run_async(work, output)


async def _read_published_store(client: Client, _: PayloadStore, *, task_queue: str) -> StoreIdentity | None:
    return await published_store(client, task_queue)


async def _store_report(settings: Settings, output: Output) -> _StoreReport:
    store = open_store(settings.payload_store, state_dir=settings.state_dir)
    cutoff = None
    try:
        async with open_read_connection(settings, output) as connection:
            retention = await read_retention(connection.client)
        cutoff = removal_cutoff(retention, owner_namespaces=await store.owner_namespaces(), now=datetime.now(UTC))
        reason = cutoff.reason
    except (RetentionUnknown, ServerUnreachable) as error:
        reason = str(error)
    cache_usage = await measure_cache(store, now=datetime.now(UTC))
    return _StoreReport(settings.payload_store, await measure_payloads(store, cutoff), cache_usage, cutoff, reason)


def _print_report(report: _StoreReport, output: Output) -> None:
    usage = report.usage
    oldest_text = (
        f", the oldest written or renewed on {_time_text(usage.oldest_renewed_at)}" if usage.oldest_renewed_at else ""
    )
    output.print(f"{report.location}: {_payloads_text(usage.total)}{oldest_text}")
    if report.cache_usage.total.count:
        cache_usage = report.cache_usage
        output.print(f"cache: {_cached_text(cache_usage.total)}; {cache_usage.expired.count:,} expired")
    if report.cutoff is None or usage.removable is None:
        output.print(f"it is unknown how much can be removed: {report.reason}")
        return
    output.print(f"can be removed: {_payloads_text(usage.removable)}")
    output.print(_retention_line(report.cutoff))


def _retention_line(cutoff: RemovalCutoff) -> str:
    since_text = _time_text(cutoff.time)
    return f"kept: values written or renewed since {since_text}, because {cutoff.reason}"


def _payloads_json(amount: Amount) -> Mapping[str, int]:
    return {"payloads": amount.count, "bytes": amount.size_bytes}


def _cached_json(amount: Amount) -> Mapping[str, int]:
    return {"results": amount.count, "bytes": amount.size_bytes}


def _cached_text(amount: Amount) -> str:
    return f"{format_count(amount.count, 'cached result')}, {decimal(amount.size_bytes)}"


def _payloads_text(amount: Amount) -> str:
    if amount.count == 0:
        return "nothing"
    return f"{format_count(amount.count, 'payload')}, {decimal(amount.size_bytes)}"


def _time_text(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
