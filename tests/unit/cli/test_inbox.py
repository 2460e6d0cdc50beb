"""`inbox`: the note about runs that no worker serves, whose requests are not listed yet."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.workflowservice.v1 import DescribeTaskQueueResponse

from dagwright.interfaces.cli import inbox
from dagwright.server import Connection
from dagwright.settings import Settings


class _Client:
    """A server that knows the pollers of a queue and how many runs are open."""

    namespace = "default"
    identity = "1@here"

    def __init__(self, pollers: list[str], running: int) -> None:
        self._pollers, self._running = pollers, running
        self.workflow_service = self

    async def describe_task_queue(self, *_: Any, **__: Any) -> DescribeTaskQueueResponse:
        response = DescribeTaskQueueResponse()
        for identity in self._pollers:
            response.pollers.add(identity=identity).last_access_time.FromDatetime(datetime.now(UTC))
        return response

    async def count_workflows(self, _: str) -> SimpleNamespace:
        return SimpleNamespace(count=self._running)


@pytest.mark.parametrize(
    ("pollers", "running", "is_starting", "begins"),
    [
        (["7@elsewhere"], 1, False, None),
        ([], 0, False, None),
        ([], 2, False, "no worker serves 2 running runs: "),
        ([], 2, True, "the worker in the background is starting; "),
    ],
)
async def test_note_names_a_worker_that_is_missing_or_starting(
    monkeypatch: pytest.MonkeyPatch, pollers: list[str], running: int, *, is_starting: bool, begins: str | None
) -> None:
    monkeypatch.setattr(inbox, "is_worker_starting", lambda _: is_starting)
    connection = cast("Connection", SimpleNamespace(client=_Client(pollers, running)))
    note = await inbox.worker_note(connection, Settings())
    assert (note or "").startswith(begins or "")
    assert (note is None) == (begins is None)
