"""`serve` and `up`: the gateway as a program, from its start to its end."""

import asyncio
import json
import signal
from pathlib import Path

import httpx
import pytest

from tests.e2e.command import CommandLine, read_line_with, stop_process, wait_for_exit
from tests.e2e.conftest import calculation

pytestmark = pytest.mark.server

_CHAT_REQUEST = {"model": "plan/sum", "messages": [{"role": "user", "content": "{}"}]}


def _write_plans(folder: Path) -> str:
    plans = folder / "plans"
    plans.mkdir()
    plan = {"plan": 1, "nodes": [calculation("sum", "1 + 2")], "output": "{{sum.result}}"}
    (plans / "sum.json").write_text(json.dumps(plan), encoding="utf-8")
    return str(plans)


@pytest.mark.parametrize("stop_signal", [pytest.param(signal.SIGTERM, marks=pytest.mark.fresh), signal.SIGINT])
async def test_gateway_answers_requests_and_ends_cleanly(
    commands: CommandLine, tmp_path: Path, stop_signal: signal.Signals
) -> None:
    process = await commands.start("serve", "--port", "0", "--plans", _write_plans(tmp_path), "--json")
    document = json.loads(await read_line_with(process, '"status"'))
    async with httpx.AsyncClient(timeout=60) as client:
        response = await client.post(f"{document['url']}/chat/completions", json=_CHAT_REQUEST)
        # A client that waits for a stream does not delay the exit.
        async with client.stream("POST", f"{document['url']}/chat/completions", json={**_CHAT_REQUEST, "stream": True}):
            process.send_signal(stop_signal)
            result = await wait_for_exit(process)
    assert (response.status_code, response.json()["choices"][0]["message"]["content"]) == (200, "3")
    assert (result.code, result.stdout, result.stderr) == (0, "", "")


async def test_serve_reports_problems_before_it_starts(commands: CommandLine, tmp_path: Path) -> None:
    blocking_server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = blocking_server.sockets[0].getsockname()[1]
    used_port_result = await commands("serve", "--port", str(port), "--json")
    missing_plans_result = await commands("serve", "--plans", str(tmp_path / "none"), "--json")
    blocking_server.close()
    assert (used_port_result.code, used_port_result.document["code"]) == (2, "invalid_value")
    assert f"cannot listen on 127.0.0.1:{port}" in used_port_result.document["message"]
    assert (missing_plans_result.code, missing_plans_result.document["code"]) == (2, "unreadable")


async def test_up_starts_a_gateway_and_down_stops_it(commands_with_private_server: CommandLine, tmp_path: Path) -> None:
    plans = _write_plans(tmp_path)
    up_result = await commands_with_private_server("up", "--plans", plans, "--port", "0", "--json")
    repeated_result = await commands_with_private_server("up", "--plans", plans, "--port", "0", "--json")
    async with httpx.AsyncClient(timeout=60) as client:
        response = await client.post(f"{up_result.document['url']}/chat/completions", json=_CHAT_REQUEST)
        down_result = await commands_with_private_server("down", "--json")
        with pytest.raises(httpx.ConnectError):
            await client.get(up_result.document["url"])
    assert (up_result.code, repeated_result.document) == (0, up_result.document)
    assert response.json()["choices"][0]["message"]["content"] == "3"
    assert down_result.document["ended"] == ["gateway", "worker", "server"]


async def test_running_gateway_applies_changes_of_keys(commands_with_private_server: CommandLine) -> None:
    options = ("--host", "0.0.0.0", "--port", "0", "--no-worker", "--no-auth", "--json")
    process = await commands_with_private_server.start("serve", *options)
    url = json.loads(await read_line_with(process, '"status"'))["url"]
    key_document = (await commands_with_private_server("keys", "add", "ann", "--scope", "run", "--json")).document
    statuses = []
    async with httpx.AsyncClient(timeout=60) as client:
        ann_headers = {"Authorization": f"Bearer {key_document['key']}"}
        statuses += [(await client.get(f"{url}/runs", headers=headers)).status_code for headers in ({}, ann_headers)]
        remove_result = await commands_with_private_server("keys", "remove", key_document["id"], "--json")
        statuses.append((await client.get(f"{url}/runs", headers=ann_headers)).status_code)
    await stop_process(process)
    assert (statuses, remove_result.code) == ([401, 200, 401], 0)
