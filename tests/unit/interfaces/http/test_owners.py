"""Keys of all owners: they have the same limits as others, and act under their ids."""

import time
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from dagwright.client.starts import StartRequest
from dagwright.interfaces.http import create_app
from dagwright.interfaces.http.callers import Caller, Permission
from dagwright.interfaces.http.key_limits import KeyUsage
from dagwright.protocol.run_labels import ALL_OWNERS
from dagwright.server import Server as TemporalServer
from tests.support.scripted_run import ScriptedRun, scripted_context

PLAN = {"plan": 1, "nodes": [{"id": "sum", "tool": "calculator", "arguments": {"expression": "1 + 2"}}]}


class Server:
    """Records the runs that are started, their owners, and the actors of commands."""

    def __init__(self) -> None:
        self.started: dict[str, str | None] = {}
        self.steered: list[Any] = []

    async def start(self, request: StartRequest) -> Any:
        self.started[str(request.workflow_id)] = request.options.owner
        return SimpleNamespace(workflow_id=request.workflow_id, is_new=True)

    async def count_open_runs(self, owner: str, *, without: Collection[str] = ()) -> int:
        return sum(whose == owner and run not in without for run, whose in self.started.items())

    async def exists(self, run: str) -> bool:
        return run in self.started

    is_open = exists

    async def send(self, _: str, __: Any, actor: Any) -> str:
        self.steered.append(actor.by)
        return "done"


@pytest.mark.parametrize("pid", [None, 7])
async def test_temporal_ui_is_shown_to_keys_that_operate(tmp_path: Path, pid: int | None) -> None:
    url = "https://temporal.example.com"
    async with scripted_context(ScriptedRun((), (), ""), tmp_path) as context:
        known = replace(context, server=TemporalServer("nowhere", "default", ui_url=url, pid=pid))
        assert known.visible_server.ui_url == url
        for scope in Permission:
            key, _ = context.keys.add("ann", [scope])
            shown = replace(known, caller=key.caller).visible_server.ui_url
            # The interface of our own server is off once there are keys.
            assert shown == (url if scope is Permission.OPERATE and pid is None else None)


Asked = tuple[httpx.AsyncClient, Server, str]


@pytest.fixture
async def boss(tmp_path: Path) -> AsyncIterator[Asked]:
    """A gateway where an owner may have two runs at a time, and the id of a key of everybody that asks it."""
    server = Server()
    async with scripted_context(ScriptedRun((), (), ""), tmp_path) as context:
        usage = KeyUsage(replace(context.usage.limits, runs=2), time.monotonic)
        of_test = replace(context, runs=cast("Any", server), steering=cast("Any", server), usage=usage)
        key, text = context.keys.add(ALL_OWNERS, list(Permission))
        transport, bearer = httpx.ASGITransport(create_app(of_test)), {"Authorization": f"Bearer {text}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=bearer) as http:
            yield http, server, key.id


async def test_key_of_all_owners_has_a_limit_of_runs_and_acts_under_its_id(boss: Asked) -> None:
    http, server, key = boss
    found = [(await http.post("/v1/runs", json={"plan": PLAN})).status_code for _ in range(3)]
    # Another gateway counts them by the list of the server.
    assert (found, [*server.started.values()]) == ([201, 201, 429], [ALL_OWNERS, ALL_OWNERS])
    for act, more in (("pause", {}), ("limits", {"max_parallel": 10}), ("policy", {"policy": {}})):
        answer = await http.post(f"/v1/runs/run-1/{act}", json={"by": "ann", **more})
        assert (answer.status_code, server.steered.pop()) == (200, key), answer.text
    callers = [Caller(), Caller(key="5f0c"), Caller("ann", key="5f0c")]
    expected = [(None, None), (ALL_OWNERS, "5f0c"), ("ann", "ann")]
    assert [(each.run_owner, each.actor_name) for each in callers] == expected
