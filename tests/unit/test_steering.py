"""What is sent to a run that takes no more messages."""

from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from dagwright import steering
from dagwright.people import AnswerRefused
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


@pytest.mark.parametrize(
    ("name", "message", "words"),
    [
        (
            "set_result",
            {"node": "sum", "result": "x" * 300_000},
            "the message has 300,0.* bytes as JSON; at most 262,144",
        ),
        ("set_policy", {"policy": {"x": "y" * 7_000_000}}, "at most 262,144 are allowed"),
        ("pause", {"reason": "x" * 4_001}, "'reason' must be a text of at most 4,000 characters"),
        ("cancel", {"reason": "x" * 4_001}, "'reason' must be a text of at most 4,000 characters"),
        ("cancel", {"by": "x" * 201}, "'by' must be a text of at most 200 characters"),
    ],
)
async def test_message_that_no_run_accepts_is_not_sent(name: str, message: dict[str, Any], words: str) -> None:
    run = _FullRun(RPCStatusCode.INVALID_ARGUMENT)
    steers = Steering(Connection(cast(Client, run), Server("here", "default"), frozenset()))
    with pytest.raises(AnswerRefused, match=words) as refused:
        await (
            steers.cancel("run", message=message) if name == "cancel" else steers.steer("run", name, message=message)
        )
    assert (type(refused.value), run.was_cancelled) == (AnswerRefused, False)
