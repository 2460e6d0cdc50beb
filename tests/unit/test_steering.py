"""What is sent to a run that takes no more messages."""

from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from dagwright import steering
from dagwright.server import Connection, Server
from dagwright.steering import Steering


class _FullRun:
    """A run, as its handle and its client, that has had all the signals that the server takes."""

    id = "run"

    def __init__(self, status: RPCStatusCode) -> None:
        self._status = status
        self.was_cancelled = False

    def get_workflow_handle(self, workflow_id: str) -> "_FullRun":
        assert workflow_id == self.id
        return self

    async def describe(self) -> None:
        """There is such a run."""

    async def execute_update(self, name: str, message: Any) -> None:
        raise RPCError(f"{name} {message}: too many", self._status, b"")

    async def cancel(self) -> None:
        self.was_cancelled = True


@pytest.mark.parametrize("status", [RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.FAILED_PRECONDITION])
async def test_run_that_takes_no_more_messages_is_cancelled_through_temporal(status: RPCStatusCode) -> None:
    run = _FullRun(status)
    connection = Connection(cast(Client, run), Server("here", "default"), frozenset())

    told = await Steering(connection).cancel("run", message={"by": "ann"})

    assert (told, run.was_cancelled) == ("the run takes no more messages; it was cancelled through Temporal", True)
    with pytest.raises((RPCError, steering.ServerRefused)):
        await Steering(connection).steer("run", "pause", message={})
