"""Daily budgets of owners across runs, on the real server."""

from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.client import Client

from dagwright.core.boundary import wire
from dagwright.core.model.call_limits import Subject, parse_limit
from dagwright.features.call_limits import limit_state
from dagwright.history.run_view import RunView
from dagwright.server.call_limits import list_limits, read_usage, set_limit
from dagwright.settings import Settings
from dagwright.testing import ModelServer
from dagwright.tools import ToolRegistry
from tests.support.eventually import eventually
from tests.support.people import tool_node
from tests.support.python_runs import services_of
from tests.support.run_views import wait_for_view
from tests.support.runs import Handle, Runs, checked_runs, document_of

pytestmark = pytest.mark.server

PLAN = {"nodes": [tool_node("short", "summarize", arguments={"text": "A text."}, retry={"max_attempts": 1})]}


async def _start(runs: Runs, owner: str) -> Handle:
    return await runs.start(PLAN, memo={wire.MEMO_OWNER: owner})


@pytest.mark.usefixtures("uncached_limits")
async def test_runs_of_an_owner_share_a_daily_budget(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A waiting call asks the limit again every second, so the call starts soon after the budget is raised.
    monkeypatch.setattr(limit_state, "MAX_ESTIMATE_S", 1.0)
    owner = f"ann-{uuid4().hex[:8]}"
    subject = Subject("owner", owner)
    async with ModelServer(*["short"] * 3) as server:
        settings = Settings(state_dir=tmp_path, model="small", openai_base_url=server.base_url)
        async with checked_runs(client, ToolRegistry(), settings=settings) as runs:
            limit = parse_limit("calls=1/day concurrency=5")
            await set_limit(client, subject, limit, task_queue=runs.task_queue, by=None)
            assert (await document_of(await _start(runs, owner)))["status"] == "completed"

            async def is_used_up() -> bool:
                limit_settings = (await list_limits(client)).get(subject)
                return (
                    limit_settings is not None and (await read_usage(client, limit_settings)).used_up_reason is not None
                )

            await eventually(is_used_up)
            client_runs = services_of(runs, tmp_path).runs
            assert "calls: 1 of 1 used" in (await client_runs.used_up_budget_text(owner) or "")
            assert await client_runs.used_up_budget_text("bob") is None
            second_handle = await _start(runs, owner)

            def is_waiting(view: RunView) -> bool:
                reasons = [node["reason"] or "" for node in view.document()["nodes"].values()]
                return "daily budget (calls: 1 of 1 used, until " in " ".join(reasons)

            await wait_for_view(client, second_handle.id, is_waiting)
            assert (await document_of(await _start(runs, "bob")))["status"] == "completed"
            await set_limit(client, subject, parse_limit("calls=5/day"), task_queue=runs.task_queue, by=None)
            document = await document_of(second_handle)
            assert (document["status"], document["nodes"]["short"]["attempts"]) == ("completed", 1)
