"""A gateway that is killed while a client reads events: another one tells the rest, each event once."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from dagwright.testing import ModelServer
from tests.e2e.command import CommandLine, asking, ended, line_with
from tests.e2e.conftest import calculation
from tests.support.gateway import NamedEvent, named_events_of

pytestmark = pytest.mark.server

LONG = {
    "plan": 1,
    "nodes": [
        *[
            {"id": f"wait{number}", "tool": "wait", "arguments": {"duration": "0.3s"}}
            | ({"depends_on": [f"wait{number - 1}"]} if number else {})
            for number in range(6)
        ],
        calculation("last", "1 + 1", depends_on=["wait5"]),
    ],
}


async def test_client_goes_on_at_another_gateway_when_one_is_killed(own_command_line: CommandLine) -> None:
    async with ModelServer() as models:
        commands = asking(own_command_line, models)
        up = await commands("up", "--port", "0", "--json")
        first = await commands.start("serve", "--port", "0", "--no-worker", "--json")
        url = json.loads(await line_with(first, '"status"'))["url"]
        seen: list[NamedEvent] = []
        async with httpx.AsyncClient(timeout=60) as client:
            run = (await client.post(f"{url}/runs", json={"plan": LONG})).json()["run_id"]
            with pytest.raises(httpx.TransportError):
                await _read(client, f"{url}/runs/{run}/events", seen, kill=first.kill)
            await ended(first)
            rest = await client.get(
                f"{up.document['url']}/runs/{run}/events", headers={"Last-Event-ID": str(seen[-1].id)}
            )
    found = _states(seen) + _states(named_events_of(rest.text))
    assert len(found) == len(set(found)), found
    assert {node for node, status in found if status == "completed"} == {*(f"wait{n}" for n in range(6)), "last"}
    assert _states(named_events_of(rest.text))
    assert named_events_of(rest.text)[-1].name == "end"


def _states(events: list[NamedEvent]) -> list[tuple[Any, Any]]:
    nodes = [node for each in events if each.name == "nodes" for node in each.content["nodes"]]
    return [(node["node_id"], node["status"]) for node in nodes]


async def _read(client: httpx.AsyncClient, url: str, seen: list[NamedEvent], *, kill: Callable[[], None]) -> None:
    """Reads events into a list, and kills whoever sends them in the middle."""
    text = ""
    is_killed = False
    async with client.stream("GET", url) as response:
        async for piece in response.aiter_text():
            whole, separator, text = f"{text}{piece}".rpartition("\n\n")
            seen += named_events_of(whole + separator) if separator else []
            if ("wait1", "completed") in _states(seen) and not is_killed:
                is_killed = True
                kill()
