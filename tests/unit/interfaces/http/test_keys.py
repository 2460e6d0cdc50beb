"""The file of API keys, and keys for the runs of all owners."""

import json
import stat
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dagwright.client.starts import StartRequest
from dagwright.interfaces.http.api_keys import KeyFile, KeyRejected, KeysUnreadable
from dagwright.interfaces.http.callers import (
    ANYONE,
    Caller,
    KeyScope,
    public_session_id,
    stored_session_name,
    validated_session_name,
)
from dagwright.interfaces.http.key_limits import KeyUsage
from dagwright.protocol.fairness import Fairness
from dagwright.protocol.run_labels import ALL_OWNERS
from dagwright.protocol.sessions import SessionIdInvalid
from dagwright.server import Server
from tests.support.scripted_run import ScriptedRun, scripted_context
from tests.unit.interfaces.http.conftest import OfflineGateway, client_of, message_of, status_and_code_of


def test_key_is_recognized_by_its_hash_only(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    key, key_text = KeyFile(path).add("ann", [KeyScope.ANSWER, KeyScope.RUN])
    assert KeyFile(path).caller_of(key_text) == Caller("ann", frozenset({KeyScope.RUN, KeyScope.ANSWER}), key.id)
    assert key_text.startswith(f"dw-{key.id}-")
    secret = key_text.removeprefix(f"dw-{key.id}-")
    assert secret not in path.read_text(encoding="utf-8")
    assert "sha256" not in key.to_json()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_weight_of_a_key_is_the_fairness_weight_of_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    _, key_text = KeyFile(path).add("ann", [], weight=2.5)
    _, all_owners_key_text = KeyFile(path).add(ALL_OWNERS, [])
    callers = [KeyFile(path).caller_of(key) for key in (key_text, all_owners_key_text)]
    assert [caller and caller.fairness for caller in callers] == [Fairness("ann", 2.5), Fairness("*")]
    assert ANYONE.fairness is None
    with pytest.raises(KeyRejected, match=r"from 0.001 to 1000, not 0\b"):
        KeyFile(path).add("bob", [], weight=0)


def test_invalid_keys_have_no_caller_and_the_key_of_all_owners_sees_all_runs(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    _, key_text = keys.add(ALL_OWNERS, [])
    assert [keys.caller_of(invalid_text) for invalid_text in (f"{key_text}x", key_text[:-1], "", "dw--")] == [None] * 4
    caller = keys.caller_of(key_text)
    assert caller is not None
    assert (caller.owner, caller.scopes, caller.can_see("ann"), caller.can_see(None)) == (None, frozenset(), True, True)
    assert [Caller("ann").can_see(owner) for owner in ("ann", "bob", None)] == [True, False, False]


def test_keys_are_required_once_a_key_exists_and_changes_apply_immediately(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    keys, second_key_file = KeyFile(path), KeyFile(path)
    assert not keys.requires_keys()
    key, key_text = second_key_file.add("ann", list(KeyScope))
    assert keys.caller_of(key_text) is not None
    assert keys.requires_keys()
    second_key_file.remove(key.id)
    assert (keys.caller_of(key_text), keys.requires_keys()) == (None, True)
    path.unlink()
    assert (keys.requires_keys(), KeyFile(path).requires_keys()) == (True, False)


def test_concurrently_added_keys_are_all_stored(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    with ThreadPoolExecutor(8) as threads:
        new_keys = list(threads.map(lambda number: KeyFile(path).add(f"owner{number}", []), range(40)))
    assert {*KeyFile(path).keys()} == {key.id for key, _ in new_keys}


def test_key_file_with_an_invalid_hash_or_content_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    key, key_text = KeyFile(path).add("ann", [])
    document = json.loads(path.read_text(encoding="utf-8"))
    for sha256 in ("é" * 64, "ab", ""):
        document["keys"][0]["sha256"] = sha256
        path.write_text(json.dumps(document), encoding="utf-8")
        with pytest.raises(KeysUnreadable, match=f"sha256 of '{key.id}' is invalid"):
            KeyFile(path).caller_of(key_text)
    for content in ("", "[]", "{}", '{"keys": [{"id": "a"}]}', '{"keys": 1}'):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(KeysUnreadable, match=r"keys\.json cannot be read"):
            KeyFile(path).keys()


def test_invalid_owner_and_unknown_key_are_rejected(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    for owner in ("", "a:b", "a b", "-a", "x" * 65, "ännchen"):
        with pytest.raises(KeyRejected, match="invalid owner"):
            keys.add(owner, list(KeyScope))
    with pytest.raises(KeyRejected, match="there is no key 'x'"):
        keys.remove("x")


def test_owners_may_use_equal_session_ids() -> None:
    ann, bob = Caller("ann"), Caller("bob")
    assert stored_session_name(ann, "main") != stored_session_name(bob, "main")
    assert public_session_id(ann, stored_session_name(ann, "main")) == "main"
    assert public_session_id(ann, None) is None
    assert (stored_session_name(ANYONE, "main"), public_session_id(ANYONE, "ann:main")) == ("main", "ann:main")


@pytest.mark.parametrize("caller", [ANYONE, Caller("ann")])
@pytest.mark.parametrize("session_id", ["a/b", ".", "..", " ..\n"])
def test_session_id_that_cannot_be_in_a_url_is_rejected(caller: Caller, session_id: str) -> None:
    with pytest.raises(SessionIdInvalid, match="cannot be part of a URL of the API"):
        validated_session_name(caller, session_id)
    assert validated_session_name(caller, "...") == stored_session_name(caller, "...")


PLAN = {"plan": 1, "nodes": [{"id": "sum", "tool": "calculator", "arguments": {"expression": "1 + 2"}}]}


class FakeServer:
    """Fake server that records the started runs, their owners, and the actors of commands."""

    def __init__(self) -> None:
        self.owners_by_run: dict[str, str | None] = {}
        self.command_actors: list[Any] = []

    async def start(self, request: StartRequest) -> Any:
        self.owners_by_run[str(request.run_id)] = request.options.owner
        return SimpleNamespace(run_id=request.run_id, is_new=True)

    async def used_up_budget_text(self, owner: str) -> str | None:
        return None

    async def count_open_runs(self, owner: str, *, excluded_ids: Collection[str] = ()) -> int:
        return sum(
            run_owner == owner and run_id not in excluded_ids for run_id, run_owner in self.owners_by_run.items()
        )

    async def exists(self, run_id: str) -> bool:
        return run_id in self.owners_by_run

    is_open = exists

    async def send(self, _: str, __: Any, actor: Any) -> str:
        self.command_actors.append(actor.by)
        return "done"


@pytest.mark.parametrize("pid", [None, 7])
async def test_temporal_ui_is_shown_only_to_keys_with_the_scope_operate(tmp_path: Path, pid: int | None) -> None:
    url = "https://temporal.example.com"
    async with scripted_context(ScriptedRun((), (), ""), tmp_path) as context:
        context_with_ui = replace(context, server=Server("nowhere", "default", ui_url=url, pid=pid))
        assert context_with_ui.visible_server.ui_url == url
        for scope in KeyScope:
            key, _ = context.keys.add("ann", [scope])
            visible_url = replace(context_with_ui, caller=key.caller).visible_server.ui_url
            # The UI of the local server is off once keys exist.
            assert visible_url == (url if scope is KeyScope.OPERATE and pid is None else None)


async def test_key_of_all_owners_has_a_limit_of_runs_and_acts_under_its_id(tmp_path: Path) -> None:
    server: Any = FakeServer()
    async with scripted_context(ScriptedRun((), (), ""), tmp_path) as context:
        usage = KeyUsage(replace(context.usage.limits, runs=2), time.monotonic)
        key, key_text = context.keys.add(ALL_OWNERS, list(KeyScope))
        async with client_of(replace(context, runs=server, steering=server, usage=usage)) as http:
            http.headers["Authorization"] = f"Bearer {key_text}"
            status_codes = [(await http.post("/v1/runs", json={"plan": PLAN})).status_code for _ in range(3)]
            # The server has the owner of each run, so that other gateways count these runs too.
            assert (status_codes, [*server.owners_by_run.values()]) == ([201, 201, 429], [ALL_OWNERS, ALL_OWNERS])
            for command, fields in (("pause", {}), ("limits", {"max_parallel": 10}), ("policy", {"policy": {}})):
                response = await http.post(f"/v1/runs/run-1/{command}", json={"by": "ann", **fields})
                assert (response.status_code, server.command_actors.pop()) == (200, key.id), response.text
    callers = [Caller(), Caller(key_id="5f0c"), Caller("ann", key_id="5f0c")]
    expected = [(None, None), (ALL_OWNERS, "5f0c"), ("ann", "ann")]
    assert [(caller.run_owner, caller.actor_name) for caller in callers] == expected


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/call-limits", None),
        ("PUT", "/v1/call-limits/tool:http_request", {"limit": "20/s"}),
        ("DELETE", "/v1/call-limits/tool:http_request", None),
    ],
)
async def test_key_of_one_owner_has_no_access_to_limits_across_runs(
    offline_gateway: OfflineGateway, method: str, path: str, body: Any
) -> None:
    http, client, context = offline_gateway
    _, key = KeyFile(context.settings.api_keys).add("ann", [*KeyScope])
    response = await http.request(method, path, json=body, headers={"Authorization": f"Bearer {key}"})
    assert (status_and_code_of(response), client.calls) == ((403, "insufficient_scope"), [])
    assert "all owners" in message_of(response)
