"""`serve` and `up`: the gateway as a program, from its start to its end."""

import asyncio
import json
import signal
from pathlib import Path

import httpx
import pytest

from dagwright.testing import ModelServer
from tests.e2e.command import CommandLine, asking, ended, line_with
from tests.e2e.conftest import calculation

pytestmark = pytest.mark.server

_ASK = {"model": "plan/sum", "messages": [{"role": "user", "content": "{}"}]}


def _publish(folder: Path) -> str:
    """Writes a folder of plans and returns its path."""
    plans = folder / "plans"
    plans.mkdir()
    plan = {"plan": 1, "nodes": [calculation("sum", "1 + 2")], "output": "{{sum.result}}"}
    (plans / "sum.json").write_text(json.dumps(plan), encoding="utf-8")
    return str(plans)


@pytest.mark.parametrize("sign", [pytest.param(signal.SIGTERM, marks=pytest.mark.fresh), signal.SIGINT])
async def test_serve_answers_with_its_own_worker_and_ends_cleanly(
    command_line: CommandLine, tmp_path: Path, sign: signal.Signals
) -> None:
    serving = await command_line.start("serve", "--port", "0", "--plans", _publish(tmp_path), "--json")
    told = json.loads(await line_with(serving, '"status"'))
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(f"{told['url']}/chat/completions", json=_ASK)
        # One who still waits for a stream keeps nobody from leaving.
        async with client.stream("POST", f"{told['url']}/chat/completions", json={**_ASK, "stream": True}):
            serving.send_signal(sign)
            end = await ended(serving)
    assert (answer.status_code, answer.json()["choices"][0]["message"]["content"]) == (200, "3")
    assert (end.code, end.stdout, end.stderr) == (0, "", "")


async def test_serve_says_what_is_wrong_before_it_starts(command_line: CommandLine, tmp_path: Path) -> None:
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    there = await command_line("serve", "--port", str(port), "--json")
    nothing = await command_line("serve", "--plans", str(tmp_path / "none"), "--json")
    taken.close()
    assert (there.code, there.document["status"]) == (2, "bad_usage")
    assert f"127.0.0.1:{port} cannot be listened on" in there.document["message"]
    assert (nothing.code, nothing.document["status"]) == (2, "unreadable")


async def test_up_has_a_gateway_until_down(own_command_line: CommandLine, tmp_path: Path) -> None:
    plans = _publish(tmp_path)
    up = await own_command_line("up", "--plans", plans, "--port", "0", "--json")
    again = await own_command_line("up", "--plans", plans, "--port", "0", "--json")
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(f"{up.document['url']}/chat/completions", json=_ASK)
        down = await own_command_line("down", "--json")
        with pytest.raises(httpx.ConnectError):
            await client.get(up.document["url"])
    assert (up.code, again.document) == (0, up.document)
    assert answer.json()["choices"][0]["message"]["content"] == "3"
    assert down.document["ended"] == ["gateway", "worker", "server"]


async def test_killed_gateway_loses_nothing(own_command_line: CommandLine, tmp_path: Path) -> None:
    async with ModelServer() as models:
        commands = asking(own_command_line, models)
        plans = tmp_path / "plans"
        plans.mkdir()
        plan = {"plan": 1, "nodes": [{"id": "check", "human": {"type": "APPROVAL", "prompt": "Publish?"}}]}
        (plans / "ask.json").write_text(json.dumps(plan), encoding="utf-8")
        up = await commands("up", "--port", "0", "--json")
        body = {"model": "plan/ask", "messages": [{"role": "user", "content": "{}"}]}
        headers = {"Idempotency-Key": "killed-gateway"}
        first = await commands.start("serve", "--port", "0", "--plans", str(plans), "--no-worker", "--json")
        url = json.loads(await line_with(first, '"status"'))["url"]
        async with httpx.AsyncClient(timeout=60) as client:
            asked = (await client.post(f"{url}/chat/completions", json=body, headers=headers)).json()
            first.kill()
            await ended(first)
            other = await commands.start("serve", "--port", "0", "--plans", str(plans), "--no-worker", "--json")
            url = json.loads(await line_with(other, '"status"'))["url"]
            again = (await client.post(f"{url}/chat/completions", json=body, headers=headers)).json()
            other.terminate()
            end = await ended(other)
    assert up.code == end.code == 0
    assert asked["choices"] == again["choices"]
    assert asked["choices"][0]["finish_reason"] == "tool_calls"


async def test_serve_listens_where_others_are_only_with_keys_or_if_told_so(
    own_command_line: CommandLine, tmp_path: Path
) -> None:
    options = ("serve", "--host", "0.0.0.0", "--port", "0", "--no-worker", "--json")
    keys = tmp_path / "state" / "api-keys.json"
    keys.parent.mkdir(exist_ok=True)
    keys.write_text("{", encoding="utf-8")
    unreadable = await own_command_line("serve", "--port", "0", "--json")
    keys.unlink()
    refused = await own_command_line(*options)
    told_so = await own_command_line.start(*options, "--no-keys")
    open_url = json.loads(await line_with(told_so, '"status"'))["url"]
    added = await own_command_line("keys", "add", "ann", "--scope", "run", "--json")
    with_keys = await own_command_line.start(*options)
    url = json.loads(await line_with(with_keys, '"status"'))["url"]
    async with httpx.AsyncClient(timeout=60) as client:
        nobody = await client.get(f"{url}/models")
        # A gateway that runs takes a key that is new.
        of_open = await client.get(f"{open_url}/runs")
        ann = await client.get(f"{url}/runs", headers={"Authorization": f"Bearer {added.document['key']}"})
    listed = await own_command_line("keys", "list", "--json")
    removed = await own_command_line("keys", "remove", added.document["id"], "--json")
    again = await own_command_line("keys", "remove", added.document["id"], "--json")
    for each in (told_so, with_keys):
        each.terminate()
        await ended(each)
    assert (unreadable.code, unreadable.document["status"]) == (2, "unreadable")
    assert (refused.code, refused.document["status"]) == (2, "bad_usage")
    assert "dagwright keys add OWNER" in refused.document["message"]
    assert (nobody.status_code, of_open.status_code, ann.status_code) == (401, 401, 200)
    assert [(key["owner"], key["scopes"], "sha256" in key) for key in listed.document] == [("ann", ["run"], False)]
    assert (removed.code, again.code) == (0, 2)
