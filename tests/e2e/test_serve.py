"""`serve` and `up`: the gateway as a program, from its start to its end."""

import asyncio
import json
import signal
from pathlib import Path

import httpx
import pytest

from tests.e2e.command import CommandLine, line_with, wait_for_exit
from tests.e2e.conftest import calculation

pytestmark = pytest.mark.server

_ASK = {"model": "plan/sum", "messages": [{"role": "user", "content": "{}"}]}


def _publish(folder: Path) -> str:
    plans = folder / "plans"
    plans.mkdir()
    plan = {"plan": 1, "nodes": [calculation("sum", "1 + 2")], "output": "{{sum.result}}"}
    (plans / "sum.json").write_text(json.dumps(plan), encoding="utf-8")
    return str(plans)


@pytest.mark.parametrize("sign", [pytest.param(signal.SIGTERM, marks=pytest.mark.fresh), signal.SIGINT])
async def test_serve_answers_and_ends_cleanly(command_line: CommandLine, tmp_path: Path, sign: signal.Signals) -> None:
    serving = await command_line.start("serve", "--port", "0", "--plans", _publish(tmp_path), "--json")
    document = json.loads(await line_with(serving, '"status"'))
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(f"{document['url']}/chat/completions", json=_ASK)
        # A client that waits for a stream does not delay the exit.
        async with client.stream("POST", f"{document['url']}/chat/completions", json={**_ASK, "stream": True}):
            serving.send_signal(sign)
            result = await wait_for_exit(serving)
    assert (answer.status_code, answer.json()["choices"][0]["message"]["content"]) == (200, "3")
    assert (result.code, result.stdout, result.stderr) == (0, "", "")


async def test_serve_reports_problems_before_it_starts(command_line: CommandLine, tmp_path: Path) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    result = await command_line("serve", "--port", str(port), "--json")
    nothing = await command_line("serve", "--plans", str(tmp_path / "none"), "--json")
    taken.close()
    assert (result.code, result.document["status"]) == (2, "bad_usage")
    assert f"cannot listen on 127.0.0.1:{port}" in result.document["message"]
    assert (nothing.code, nothing.document["status"]) == (2, "unreadable")


async def test_up_has_a_gateway_until_down(own_command_line: CommandLine, tmp_path: Path) -> None:
    plans = _publish(tmp_path)
    up = await own_command_line("up", "--plans", plans, "--port", "0", "--json")
    repeated_result = await own_command_line("up", "--plans", plans, "--port", "0", "--json")
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(f"{up.document['url']}/chat/completions", json=_ASK)
        down = await own_command_line("down", "--json")
        with pytest.raises(httpx.ConnectError):
            await client.get(up.document["url"])
    assert (up.code, repeated_result.document) == (0, up.document)
    assert answer.json()["choices"][0]["message"]["content"] == "3"
    assert down.document["ended"] == ["gateway", "worker", "server"]


async def test_running_gateway_follows_changes_of_keys(own_command_line: CommandLine) -> None:
    options = ("--host", "0.0.0.0", "--port", "0", "--no-worker", "--no-auth", "--json")
    serving = await own_command_line.start("serve", *options)
    url = json.loads(await line_with(serving, '"status"'))["url"]
    added = (await own_command_line("keys", "add", "ann", "--scope", "run", "--json")).document
    statuses = []
    async with httpx.AsyncClient(timeout=60) as client:
        ann = {"Authorization": f"Bearer {added['key']}"}
        statuses += [(await client.get(f"{url}/runs", headers=headers)).status_code for headers in ({}, ann)]
        removed = await own_command_line("keys", "remove", added["id"], "--json")
        statuses.append((await client.get(f"{url}/runs", headers=ann)).status_code)
    serving.terminate()
    await wait_for_exit(serving)
    assert (statuses, removed.code) == ([401, 200, 401], 0)
