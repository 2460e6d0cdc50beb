"""Tells whether a worker on this machine serves: `python -m dagwright.server.health`, for container health checks.

A worker that lives but lost its server is not healthy, so the server is asked who polls the task queue. Nothing is
started here: the server is the one that Temporal's variables name, or the one that runs in the state folder.
"""

import asyncio
import os
import socket
import sys
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from dagwright.server.connection import find_connection
from dagwright.server.errors import NoServer
from dagwright.settings import Settings, SettingsError, load_settings

_FRESH = timedelta(seconds=90)
"""A poll lasts up to a minute, so a worker that serves was seen within that time and a little more."""


async def is_served(client: Client, task_queue: str) -> bool:
    """Tells whether a living process of this machine has lately asked for workflow tasks of the queue."""
    described = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=task_queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        ),
        timeout=timedelta(seconds=5),
    )
    return any(_is_fresh(poller) and is_alive_here(poller.identity) for poller in described.pollers)


def _is_fresh(poller: PollerInfo) -> bool:
    return datetime.now(UTC) - poller.last_access_time.ToDatetime(tzinfo=UTC) < _FRESH


def is_alive_here(identity: str) -> bool:
    """Tells whether a worker is a process of this machine that lives: the server lists a killed one for minutes."""
    pid = _pid_here(identity)
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def is_dead_here(identity: str) -> bool:
    """Tells whether a worker was a process of this machine and is gone; nothing is known of other machines."""
    return _pid_here(identity) is not None and not is_alive_here(identity)


def _pid_here(identity: str) -> int | None:
    """Reads the SDK's default identity, `<pid>@<host>`."""
    pid, _, host = identity.partition("@")
    return int(pid) if host == socket.gethostname() and pid.isdecimal() else None


async def _check(settings: Settings) -> str | None:
    """Returns what is wrong, or None."""
    try:
        client = await find_connection(settings)
        if client is None:
            return "no Temporal server runs"
        if not await is_served(client, settings.task_queue):
            return f"no worker on this machine serves task queue {settings.task_queue!r}"
    except (NoServer, RPCError) as error:
        return str(error)
    return None


def main() -> None:
    """Exits with 0 if a worker serves, else with 1 and one sentence on stderr."""
    try:
        wrong = asyncio.run(_check(load_settings()))
    except SettingsError as error:
        wrong = str(error)
    if wrong is not None:
        sys.exit(wrong)


if __name__ == "__main__":
    main()
