"""Sessions without a server: what a turn does that the server does not take."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.service import RPCError, RPCStatusCode

from dagwright.client import Runs, Sending
from dagwright.contracts.sessions import Session
from dagwright.server import Connection, Server
from dagwright.sessions import PreparedTurn, Sessions


class _Busy:
    """A server that knows no session and has too much to do."""

    def __init__(self) -> None:
        self.asked = 0

    def get_workflow_handle(self, workflow_id: str) -> Any:
        async def describe() -> Any:
            raise RPCError(f"no {workflow_id}", RPCStatusCode.NOT_FOUND, b"")

        return SimpleNamespace(describe=describe)

    async def execute_update_with_start_workflow(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        raise RPCError("too much to do", RPCStatusCode.RESOURCE_EXHAUSTED, b"")


async def test_server_that_has_too_much_to_do_is_asked_again_by_the_sdk_alone() -> None:
    busy = _Busy()
    connection = Connection(cast("Any", busy), Server("nowhere", "default"), frozenset())
    sessions = Sessions(connection, cast("Runs", None), task_queue="queue")

    async def prepare(_: Session) -> PreparedTurn:
        return PreparedTurn("Do it.", Sending("RunPlan", {}, {}, None, None, {}, None))

    with pytest.raises(RPCError, match="too much to do"):
        await sessions.take_turn("s", prepare, busy=lambda turn: None)
    assert busy.asked == 1
