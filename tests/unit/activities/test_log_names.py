"""Lines of the log that come out of an activity say which call they are about."""

from dataclasses import replace
from typing import Any

import pytest
from structlog.contextvars import get_contextvars
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from activities.call_headers import ToolInterceptor


class _Inside(ActivityInboundInterceptor):
    """Stands where an activity runs, and returns what is bound there."""

    def __init__(self) -> None:
        pass

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        return get_contextvars()


@pytest.mark.parametrize(
    ("kind", "activity_id", "named"),
    [("calculator", "sum#2", {"node_id": "sum#2"}), ("compile_plan", "1", {"activity": "compile_plan"})],
)
async def test_node_is_named_and_an_activity_that_is_none_by_its_kind(
    kind: str, activity_id: str, named: dict[str, str]
) -> None:
    environment = ActivityEnvironment()
    environment.info = replace(
        environment.info, activity_type=kind, activity_id=activity_id, attempt=3, workflow_id="run-1"
    )

    async def run() -> Any:
        given = ExecuteActivityInput(fn=run, args=[], executor=None, headers={})
        return await ToolInterceptor().intercept_activity(_Inside()).execute_activity(given)

    assert await environment.run(run) == {"workflow_id": "run-1", "attempt": 3, **named}
