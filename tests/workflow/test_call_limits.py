"""Call limits across all runs, on the real server."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from structlog.testing import capture_logs
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from dagwright.activities import limiter
from dagwright.core.boundary import wire
from dagwright.core.model.call_limits import Subject, parse_limit
from dagwright.features.call_limits import limit_state
from dagwright.history.run_view import RunView
from dagwright.planning.agent_loop.spec import AgentSpec, agent_plan
from dagwright.protocol.call_limit_messages import CallRequest, LimitMessage, LimitSettings
from dagwright.server import call_limits as server_limits
from dagwright.server.call_limits import (
    declare_limit,
    hold_calls,
    list_limits,
    read_usage,
    remove_limit,
    send_limit_message,
    set_limit,
)
from dagwright.settings import Settings
from dagwright.testing import ModelServer, Tokens, text, tool_call
from dagwright.tools import ToolRegistry, context, tool
from tests.support.eventually import eventually
from tests.support.people import tool_node
from tests.support.plan_building import plan_of
from tests.support.run_views import wait_for_view
from tests.support.runs import Runs, check_history, checked_runs, document_of, events_of, scheduled_calls, serving_runs

pytestmark = [pytest.mark.server, pytest.mark.waits, pytest.mark.usefixtures("uncached_limits")]


class LimitedTool:
    """A tool with a call limit. It records its calls."""

    def __init__(self) -> None:
        self.name = f"fetch_{uuid4().hex[:8]}"
        self.starts: list[float] = []
        self.attempts: list[int] = []
        self.running_count = self.max_running_count = 0
        self.duration_s = 0.0

    @property
    def subject(self) -> Subject:
        return Subject("tool", self.name)

    def registry(self, *, limit: str | None = None) -> ToolRegistry:
        @tool(name=self.name, effects="read", max_attempts=2, batch=True, limit=limit)
        async def fetch(item: int) -> int:
            self.starts.append(time.monotonic())
            self.attempts.append(context().attempt)
            self.running_count += 1
            self.max_running_count = max(self.max_running_count, self.running_count)
            await asyncio.sleep(self.duration_s)
            self.running_count -= 1
            return item

        return ToolRegistry.of(fetch)

    def plan(self, count: int) -> dict[str, Any]:
        return plan_of(tool_node("a", self.name, for_each=[*range(count)], arguments={"item": "{{item}}"}))


@pytest.fixture
def limited_tool() -> LimitedTool:
    return LimitedTool()


@pytest.fixture
async def served_runs(client: Client, limited_tool: LimitedTool, tmp_path: Path) -> AsyncIterator[Runs]:
    async with checked_runs(client, limited_tool.registry(), settings=Settings(state_dir=tmp_path)) as runs:
        yield runs


async def _set_limit(runs: Runs, limited_tool: LimitedTool, text: str) -> None:
    await set_limit(runs.client, limited_tool.subject, parse_limit(text), task_queue=runs.task_queue, by="ann")


async def test_calls_respect_a_rate_limit_and_waiting_is_not_an_attempt(
    served_runs: Runs, limited_tool: LimitedTool
) -> None:
    await _set_limit(served_runs, limited_tool, "10/s")
    handle = await served_runs.start(limited_tool.plan(40))

    def is_limited(view: RunView) -> bool:
        reasons = [node["reason"] or "" for node in view.document()["nodes"].values()]
        return any(
            f"rate limit 10/s on {limited_tool.name}, " in reason and "calls ahead" in reason for reason in reasons
        )

    await wait_for_view(served_runs.client, handle.id, is_limited)
    assert (await document_of(handle))["status"] == "completed"
    assert (len(limited_tool.starts), set(limited_tool.attempts)) == (40, {1})
    assert limited_tool.starts[-1] - limited_tool.starts[0] > 3.5
    max_starts = max(
        sum(start <= other_start < start + 1.0 for other_start in limited_tool.starts) for start in limited_tool.starts
    )
    # A call may start up to 0.1 s early or 0.25 s late.
    assert max_starts <= 14


async def test_concurrency_limit_is_never_exceeded_and_each_call_runs(
    served_runs: Runs, limited_tool: LimitedTool
) -> None:
    limited_tool.duration_s = 0.3
    await _set_limit(served_runs, limited_tool, "concurrency=3")
    handles = [await served_runs.start(limited_tool.plan(8)) for _ in range(2)]
    limits = await list_limits(served_runs.client)
    await eventually(lambda: limited_tool.running_count == 3)
    usage = await read_usage(served_runs.client, limits[limited_tool.subject])
    assert (usage.running_calls, usage.settings.by, str(usage.settings.limit)) == (3, "ann", "concurrency=3")
    assert [(await document_of(handle))["status"] for handle in handles] == ["completed"] * 2
    assert (len(limited_tool.starts), limited_tool.max_running_count, set(limited_tool.attempts)) == (16, 3, {1})

    async def is_free() -> bool:
        return (await read_usage(served_runs.client, limits[limited_tool.subject])).running_calls == 0

    await eventually(is_free)
    # Without a limit, the next calls run together.
    await remove_limit(served_runs.client, limited_tool.subject)
    await document_of(await served_runs.start(limited_tool.plan(8)))
    assert limited_tool.max_running_count > 3


async def test_unrenewed_lease_expires_and_a_renewed_lease_stays(
    served_runs: Runs, limited_tool: LimitedTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit_state, "LEASE_S", 2.0)
    monkeypatch.setattr(limiter, "LEASE_S", 2.0)
    await _set_limit(served_runs, limited_tool, "concurrency=1")
    # No worker renews the lease of this call.
    message = LimitMessage(requests={"unrenewed": CallRequest()})
    assert (await send_limit_message(served_runs.client, limited_tool.subject, message)).answers[
        "unrenewed"
    ].decision == "start"
    limited_tool.duration_s = 4.0
    started_at = time.monotonic()
    assert (await document_of(await served_runs.start(limited_tool.plan(2))))["status"] == "completed"
    assert limited_tool.starts[0] - started_at > 1.5
    assert (limited_tool.max_running_count, limited_tool.starts[1] - limited_tool.starts[0] > 3.9) == (1, True)


async def test_limit_deletes_its_earlier_executions(short_history_client: Client, tmp_path: Path) -> None:
    subject = Subject("model", "busy")
    handle = short_history_client.get_workflow_handle(f"{wire.ID_CALL_LIMIT}{subject}")
    async with serving_runs(short_history_client, ToolRegistry(), settings=Settings(state_dir=tmp_path)) as runs:
        await set_limit(short_history_client, subject, parse_limit("1000/s"), task_queue=runs.task_queue, by=None)
        execution_ids = {(await handle.describe()).run_id: None}
        while len(execution_ids) < 3:
            await send_limit_message(short_history_client, subject, LimitMessage({"a": CallRequest()}))
            execution_ids[(await handle.describe()).run_id] = None

        async def has_requested_deletion() -> bool:
            return bool(events_of(await handle.fetch_history(), EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED))

        # The server takes about a minute to delete an execution, so the test checks the request.
        await eventually(has_requested_deletion)
        [deletion] = scheduled_calls(await handle.fetch_history())
        # The execution before the open execution stays: it may have received an update for which a client still waits.
        assert json.loads(deletion.input.payloads[0].data) == next(iter(execution_ids))
        await remove_limit(short_history_client, subject)
        await handle.result()
        await check_history(await handle.fetch_history())


async def test_two_clients_can_remove_a_limit_concurrently_without_a_worker(
    client: Client, limited_tool: LimitedTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_limits, "RESPONSE_TIMEOUT_S", 0.3)
    await set_limit(client, limited_tool.subject, parse_limit("5/s"), task_queue="unserved", by=None)
    removed_settings = await asyncio.gather(*(remove_limit(client, limited_tool.subject) for _ in range(2)))
    assert {str(settings.override) for settings in removed_settings if settings is not None} == {"5/s"}
    assert await remove_limit(client, limited_tool.subject) is None


@pytest.fixture
def end_limit_before_updates(limited_tool: LimitedTool, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that lets another client end the limit before each following update."""
    update = server_limits._update

    async def end_limit_before_update(client: Client, *arguments: Any) -> Any:
        await client.get_workflow_handle(f"{wire.ID_CALL_LIMIT}{limited_tool.subject}").terminate()
        return await update(client, *arguments)

    return lambda: monkeypatch.setattr(server_limits, "_update", end_limit_before_update)


async def test_limit_that_another_client_ends_during_the_removal_counts_as_removed(
    client: Client, limited_tool: LimitedTool, end_limit_before_updates: Callable[[], None]
) -> None:
    await set_limit(client, limited_tool.subject, parse_limit("5/s"), task_queue="unserved", by=None)
    end_limit_before_updates()
    assert await remove_limit(client, limited_tool.subject) is None


async def test_hold_applies_although_another_client_ends_the_limit(
    served_runs: Runs, limited_tool: LimitedTool, end_limit_before_updates: Callable[[], None]
) -> None:
    await _set_limit(served_runs, limited_tool, "5/s")
    end_limit_before_updates()
    await hold_calls(
        served_runs.client,
        limited_tool.subject,
        hold_s=60.0,
        reason="429 from example.org",
        task_queue=served_runs.task_queue,
    )
    usage = await read_usage(served_runs.client, LimitSettings(limited_tool.subject))
    assert "429 from example.org" in (usage.hold_reason or "")


async def test_declared_limit_applies_from_the_first_call_and_can_be_overridden(
    client: Client, limited_tool: LimitedTool, tmp_path: Path
) -> None:
    limited_tool.duration_s = 0.1
    settings = Settings(state_dir=tmp_path, limits=f"template:t_{limited_tool.name} concurrency=1")
    async with checked_runs(client, limited_tool.registry(limit="concurrency=2"), settings=settings) as runs:
        earlier_limit = parse_limit("concurrency=9")
        await declare_limit(client, limited_tool.subject, earlier_limit, task_queue=runs.task_queue)

        async def is_listed() -> bool:
            limit_settings = (await list_limits(client)).get(limited_tool.subject)
            return limit_settings is not None and limit_settings.declared_limit == earlier_limit

        await eventually(is_listed)
        with capture_logs() as logs:
            await document_of(await runs.start(limited_tool.plan(6)))
        assert limited_tool.max_running_count == 2
        [change] = [(log["earlier"], log["limit"]) for log in logs if log["event"].startswith("changing the limit")]
        assert change == ("concurrency=9", "concurrency=2")
        await _set_limit(runs, limited_tool, "concurrency=4")
        await document_of(await runs.start(limited_tool.plan(8)))
        assert limited_tool.max_running_count == 4
        settings_before = await remove_limit(client, limited_tool.subject)
        assert settings_before is not None
        expected = ("concurrency=4", "concurrency=2")
        assert (str(settings_before.override), str(settings_before.declared_limit)) == expected
        limited_tool.max_running_count = 0
        await document_of(await runs.start(limited_tool.plan(6)))
        assert limited_tool.max_running_count == 2

        # A run's template is in the memo, which a plan cannot change. All runs of a template share a limit.
        limited_tool.max_running_count = 0
        memo = {wire.MEMO_TEMPLATE: f"t_{limited_tool.name}"}
        for handle in [await runs.start(limited_tool.plan(3), memo=memo) for _ in range(2)]:
            await document_of(handle)
        assert limited_tool.max_running_count == 1


async def test_model_calls_of_agents_and_tools_wait_for_tokens(client: Client, tmp_path: Path) -> None:
    model_name = f"m-{uuid4().hex[:8]}"
    tokens = Tokens(6_000, 1_000)

    @tool(effects="read", uses_models=True)
    async def echo(question: str) -> str:
        return (await context().ask_model(question)).text

    steps = (
        replace(tool_call("echo", question="?"), tokens=tokens),
        text("inner", tokens=tokens),
        text("done", tokens=tokens),
    )
    async with ModelServer(*steps) as model:
        settings = Settings(
            state_dir=tmp_path,
            openai_base_url=model.base_url,
            openai_api_key="key",
            model=model_name,
            limits=f"model:{model_name} tokens=60000",
        )
        async with checked_runs(client, ToolRegistry.of(echo), settings=settings) as runs:
            plan = agent_plan(AgentSpec("helper", tools={"echo": runs.tools["echo"]}), prompt="Ask.", result_titles={})
            started_at = time.monotonic()
            document = await document_of(await runs.start_compiled_plan(plan, inputs={"objective": "?"}))
            assert document["output"] == "done"
            assert {node["attempts"] for node in document["nodes"].values()} == {1}
            # Each call uses as many tokens as the limit allows in 7 s. A call may start up to 6 s early.
            assert time.monotonic() - started_at > 7.5
