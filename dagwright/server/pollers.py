"""Find the workers that poll a task queue, and recognize exited workers of this machine."""

import os
import socket
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

_MAX_POLL_AGE = timedelta(seconds=90)
"""Maximum age of the last poll of a running worker: a poll lasts up to a minute."""


async def is_polling(client: Client, task_queue: str) -> bool:
    """Return whether the worker of a client has polled a queue for workflow tasks within the last 90 s.

    Raises:
        RPCError: the server does not respond.
    """
    return client.identity in await _recent_poller_identities(client, task_queue)


async def has_pollers(client: Client, task_queue: str) -> bool:
    """Return whether a running worker has polled a queue for workflow tasks within the last 90 s.

    Raises:
        RPCError: the server does not respond.
    """
    return not all(map(is_dead_on_this_machine, await _recent_poller_identities(client, task_queue)))


async def _recent_poller_identities(client: Client, task_queue: str) -> list[str]:
    description = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=task_queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        ),
        timeout=timedelta(seconds=5),
    )
    now = datetime.now(UTC)
    return [
        poller.identity
        for poller in description.pollers
        if now - poller.last_access_time.ToDatetime(tzinfo=UTC) < _MAX_POLL_AGE
    ]


def is_dead_on_this_machine(identity: str) -> bool:
    """Return whether a worker was a process of this machine and has exited.

    The server lists a killed worker for minutes.

    Args:
        identity: identity of the worker. Only the default identities of the SDK on this machine, `<pid>@<host>`, can
            be checked; for other identities, the result is False.
    """
    pid, _, host = identity.partition("@")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
