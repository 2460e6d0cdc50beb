"""Sessions without a server: rejected turns, and turns that are sent again."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.service import RPCError, RPCStatusCode

from dagwright.client.errors import RunIdInUse, TurnRejected
from dagwright.client.runs import Runs
from dagwright.client.sessions import PreparedTurn, Sessions, SessionView
from dagwright.client.starts import EncodedStart, StartedRun
from dagwright.protocol.sessions import SessionRecord, session_workflow_id
from dagwright.protocol.turns import TurnStart
from dagwright.server import Connection, Server

TURN = PreparedTurn("Do it.", EncodedStart("RunPlan", {}, {}, None, None, {}, None))


async def test_busy_server_is_retried_by_the_sdk_alone() -> None:
    updates: list[str] = []

    async def describe() -> Any:
        raise RPCError("no such session", RPCStatusCode.NOT_FOUND, b"")

    async def execute(*_: Any, **__: Any) -> Any:
        updates.append("update")
        raise RPCError("too much to do", RPCStatusCode.RESOURCE_EXHAUSTED, b"")

    async def prepare(_: SessionRecord) -> PreparedTurn:
        return TURN

    handle = SimpleNamespace(describe=describe)
    client = SimpleNamespace(get_workflow_handle=lambda _: handle, execute_update_with_start_workflow=execute)
    connection = Connection(cast("Any", client), Server("nowhere", "default"), frozenset())
    sessions = Sessions(connection, cast("Runs", None), task_queue="queue")
    with pytest.raises(RPCError, match="too much to do"):
        await sessions.start_turn("s", prepare, on_busy=lambda turn: None)
    assert updates == ["update"]


class _FakeSessions(Sessions):
    """Sessions without a server. They record the steps of starting a turn.

    Args:
        existing_run: the run that already has the ID of the turn.
        parent_name: name of the session whose run has the ID of the turn.
        dropped_turn: ID of a turn that is removed before a client reads the session.
    """

    def __init__(
        self, existing_run: StartedRun | None = None, *, parent_name: str = "s", dropped_turn: str = ""
    ) -> None:
        self.steps: list[str] = []
        self.session = SessionRecord("s")
        self._run_with_same_id, self._parent_name, self._dropped_turn = existing_run, parent_name, dropped_turn
        connection = Connection(cast("Any", self), Server("nowhere", "default"), frozenset())
        super().__init__(connection, cast("Runs", self), task_queue="queue", ensure_served=self._record_serving)

    async def find_same_run(self, *_: Any) -> StartedRun | None:
        return self._run_with_same_id

    def get_workflow_handle(self, workflow_id: str) -> Any:
        async def describe() -> Any:
            return SimpleNamespace(id=workflow_id, run_id="1", parent_id=session_workflow_id(self._parent_name))

        return SimpleNamespace(describe=describe)

    async def read(self, name: str) -> SessionView:
        self.session.drop_turn(self._dropped_turn)
        return SessionView(self.session)

    async def _record_serving(self) -> None:
        self.steps.append("served")

    async def _send(self, name: str, turn: PreparedTurn, *, run_id: str, version: int) -> None:
        self.steps.append("sent")
        self.session.start_turn(TurnStart(run_id, {}, turn.request), at=0.0)

    async def start_test_turn(self, run_id: str | None = None, *, is_rejected: bool = False) -> None:
        async def prepare(_: SessionRecord) -> PreparedTurn:
            self.steps.append("prepared")
            if is_rejected:
                raise TurnRejected("model_not_set", "no model is named")
            return TURN

        await self.start_turn("s", prepare, run_id=run_id)


async def test_queue_is_not_served_for_a_rejected_turn() -> None:
    sessions = _FakeSessions()
    with pytest.raises(TurnRejected):
        await sessions.start_test_turn(is_rejected=True)
    assert sessions.steps == ["prepared"]
    busy_sessions = _FakeSessions()
    busy_sessions.session.start_turn(TurnStart("other", {}, "First."), at=0.0)
    with pytest.raises(TurnRejected):
        await busy_sessions.start_test_turn()
    assert busy_sessions.steps == []


async def test_queue_is_served_before_a_turn_is_sent() -> None:
    sessions = _FakeSessions()
    await sessions.start_test_turn("one")
    # The first preparation is compared with the run that may have the ID `one` already.
    assert sessions.steps == ["prepared", "prepared", "served", "sent", "served"]
    # The turn has started already, but the worker may have ended. So the queue is served again.
    await sessions.start_test_turn("one")
    assert sessions.steps[5:] == ["prepared", "served"]
    repeated_sessions = _FakeSessions(StartedRun("one", "1", is_new=False))
    await repeated_sessions.start_test_turn("one")
    assert repeated_sessions.steps == ["prepared", "served"]


async def test_turn_with_the_id_of_another_run_is_sent_once() -> None:
    sessions = _FakeSessions(parent_name="other", dropped_turn="one")
    with pytest.raises(RunIdInUse, match="belongs to a run of the session 'other'"):
        await sessions.start_test_turn("one")
    assert sessions.steps.count("sent") == 1
