"""A worker of another program: activities written with Temporal's SDK alone, without Dagwright."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from dagwright.core.boundary import wire
from dagwright.core.model.tools import Effects, ToolDeclaration
from tests.support.runs import Runs, raw_value


@activity.defn(name="foreign.text")
async def _text(arguments: dict[str, Any]) -> RawValue:
    """Return a random text of `size` bytes."""
    return raw_value(b'"' + secrets.token_hex(arguments["size"] // 2 + 1)[: arguments["size"]].encode() + b'"')


@activity.defn(name="foreign.echo")
async def _echo(arguments: dict[str, Any]) -> RawValue:
    """Return the arguments, with the metadata that marks references to stored values in Dagwright's results."""
    data = json.dumps(arguments).encode()
    return RawValue(Payload(metadata={"encoding": b"json/plain", wire.METADATA_STORED: b"1"}, data=data))


@activity.defn(name="foreign.fail")
async def _fail_permanently(arguments: dict[str, Any]) -> None:
    """Fail permanently with a message of `size` bytes."""
    raise ApplicationError("x" * arguments["size"], type="Foreign", non_retryable=True)


@activity.defn(name="foreign.later")
async def _request_retry_after_days(arguments: dict[str, Any]) -> None:
    """Request a retry after `days` days."""
    raise ApplicationError("not today", type="Foreign", next_retry_delay=timedelta(days=arguments["days"]))


@activity.defn(name="foreign.deaf")
async def _sleep_without_heartbeats(arguments: dict[str, Any]) -> str:
    """Sleep without heartbeats, so that the worker never learns of a cancellation."""
    await asyncio.sleep(arguments["seconds"])
    return "done"


_ACTIVITIES = (_text, _echo, _fail_permanently, _request_retry_after_days, _sleep_without_heartbeats)
_NAMES = ("foreign.text", "foreign.echo", "foreign.fail", "foreign.later", "foreign.deaf")


@asynccontextmanager
async def foreign_worker(client: Client) -> AsyncIterator[Mapping[str, ToolDeclaration]]:
    """Serve the activities on a separate queue; yield the declarations for plans."""
    queue = f"foreign-{uuid4().hex}"
    async with Worker(client, task_queue=queue, activities=_ACTIVITIES):
        fields: dict[str, Any] = {"effects": Effects.READ, "task_queue": queue, "is_foreign": True, "timeout_s": 20}
        yield {name: ToolDeclaration(name, **fields) for name in _NAMES}


def with_tools(runs: Runs, tools: Mapping[str, ToolDeclaration]) -> Runs:
    """Return `Runs` for the same workers. The plans of these runs may call `tools` too."""
    return Runs(runs.client, task_queue=runs.task_queue, tools={**runs.tools, **tools}, store=runs.store)
