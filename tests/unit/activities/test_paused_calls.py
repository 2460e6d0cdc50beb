"""Calls that a worker pauses: calls of paused tools, and of tools and agents that the worker does not have."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from dagwright.activities import paused_calls, stored_agents, unknown_tools
from dagwright.activities.errors import ToolPaused, error_text, retry_decision
from dagwright.activities.paused_calls import PausedCalls
from dagwright.activities.stored_agents import stored_agent_activity
from dagwright.activities.unknown_tools import unknown_tool_activity
from dagwright.core.model.tools import Effects
from dagwright.server.tool_pauses import ToolPause

_TOOL_PAUSE = ToolPause("send", 0.0, "ann", "down")
_UNAVAILABLE_ERROR = RPCError("gone", RPCStatusCode.UNAVAILABLE, b"")


class FakeServer:
    """Fake server with scripted pause states of a tool. It records each call that is paused or unpaused."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *states: ToolPause | RPCError | None) -> None:
        self.states = list(states)
        self.events: list[str] = []
        self.cannot_pause = False
        for name in ("find_tool_pause", "pause_call", "unpause_call"):
            monkeypatch.setattr(paused_calls, name, getattr(self, name))

    async def find_tool_pause(self, client: Client, tool: str) -> ToolPause | None:
        state = self.states.pop(0)
        if isinstance(state, RPCError):
            raise state
        return state

    async def pause_call(self, client: Client, run: Any, activity_id: str, *, reason: str) -> None:
        if self.cannot_pause:
            raise RPCError("unknown method", RPCStatusCode.UNIMPLEMENTED, b"")
        self.events.append(f"pause {activity_id}: {reason}")

    async def unpause_call(self, client: Client, run: Any, activity_id: str) -> None:
        self.events.append(f"unpause {activity_id}")


async def _pauses_of_calls(count: int = 1) -> list[ToolPause | None]:
    paused_calls = PausedCalls(cast(Client, None))

    async def find_pauses() -> list[ToolPause | None]:
        return [await paused_calls.pause_if_tool_is_paused("send") for _ in range(count)]

    return await ActivityEnvironment().run(find_pauses)


async def test_server_is_queried_once_for_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeServer(monkeypatch, None)
    assert await _pauses_of_calls(count=5) == [None] * 5
    assert (server.states, server.events) == ([], [])


async def test_call_of_a_paused_tool_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeServer(monkeypatch, _TOOL_PAUSE, _TOOL_PAUSE, _TOOL_PAUSE)
    assert await _pauses_of_calls() == [_TOOL_PAUSE]
    assert server.events == ["pause test: tool paused by ann at 1970-01-01T00:00:00.000Z: down"]


async def test_call_is_unpaused_if_its_tool_was_resumed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeServer(monkeypatch, _TOOL_PAUSE, _TOOL_PAUSE, None)
    assert await _pauses_of_calls() == [None]
    assert [each.partition(":")[0] for each in server.events] == ["pause test", "unpause test"]


@pytest.mark.parametrize("states", [(_UNAVAILABLE_ERROR,), (_TOOL_PAUSE, None)], ids=["unavailable", "resumed"])
async def test_call_is_not_paused_if_the_server_is_unavailable_or_has_a_newer_state(
    monkeypatch: pytest.MonkeyPatch, states: tuple[Any, ...]
) -> None:
    server = FakeServer(monkeypatch, *states)
    assert await _pauses_of_calls() == [None]
    assert (server.states, server.events) == ([], [])


async def test_pause_of_the_tool_is_returned_even_if_the_server_cannot_pause_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = FakeServer(monkeypatch, _TOOL_PAUSE, _TOOL_PAUSE)
    server.cannot_pause = True
    assert await _pauses_of_calls() == [_TOOL_PAUSE]


@pytest.mark.parametrize("effects", Effects)
def test_error_tool_paused_is_retried_for_all_effects(effects: Effects) -> None:
    error = ToolPaused(f"send: {_TOOL_PAUSE.message}")
    decision = retry_decision(error, effects)
    assert (decision.code, decision.is_final, decision.delay is not None) == ("tool_paused", False, True)
    assert error_text(error) == "send: tool paused by ann at 1970-01-01T00:00:00.000Z: down"


class _NoAgents:
    """A database without agents."""

    def spec(self, name: str, version: str | None) -> None:
        """Return no agent."""


@pytest.mark.parametrize(("tool", "missing_name"), [("greet", "tool 'greet'"), ("agent.desk", "agent 'desk'")])
async def test_call_of_a_tool_that_the_worker_lacks_is_paused(
    monkeypatch: pytest.MonkeyPatch, tool: str, missing_name: str
) -> None:
    pause_reasons: list[str] = []

    async def pause_call(*_: Any, reason: str) -> None:
        pause_reasons.append(reason)

    monkeypatch.setattr(unknown_tools, "pause_call", pause_call)
    monkeypatch.setattr(stored_agents, "checked_version", lambda: "1")
    client = cast("Client", SimpleNamespace(identity="w"))
    call = unknown_tool_activity(client, stored_agent_activity(_NoAgents(), lambda spec: pytest.fail(spec.name)))
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, activity_type=tool, task_queue="q")
    with pytest.raises(ApplicationError) as caught:
        await environment.run(call, [])
    message = f"tool missing: the worker w serves the queue 'q' and has no {missing_name}"
    assert (caught.value.type, caught.value.message, pause_reasons) == ("tool_missing", message, [message])
