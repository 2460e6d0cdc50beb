"""Calls that reach a worker without their tool or agent: held for a worker that has it."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import stored_agents, unknown_tools
from activities.stored_agents import stored_agent_activity
from activities.unknown_tools import unknown_tool_activity


class _NoAgents:
    """A database to which no agent was added."""

    def spec(self, name: str, version: str | None) -> None:
        """Find nothing."""


@pytest.mark.parametrize(("called", "missing"), [("greet", "tool 'greet'"), ("agent.desk", "agent 'desk'")])
async def test_call_of_what_the_worker_lacks_is_held(
    monkeypatch: pytest.MonkeyPatch, called: str, missing: str
) -> None:
    held: list[str] = []

    async def pause_call(*_: Any, reason: str) -> None:
        held.append(reason)

    monkeypatch.setattr(unknown_tools, "pause_call", pause_call)
    monkeypatch.setattr(stored_agents, "checked_version", lambda: "1")
    client = cast("Client", SimpleNamespace(identity="w"))
    call = unknown_tool_activity(client, stored_agent_activity(_NoAgents(), lambda spec: pytest.fail(spec.name)))
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, activity_type=called, task_queue="q")
    with pytest.raises(ApplicationError) as raised:
        await environment.run(call, [])
    words = f"tool missing: the worker w serves the queue 'q' and has no {missing}"
    assert (raised.value.type, raised.value.message, held) == ("tool_missing", words, [words])
