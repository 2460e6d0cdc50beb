"""Clients that disconnect, and a gateway that stops, while a turn waits for its session: HTTP without Temporal."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from dagwright.client.errors import FeedbackRejected, RunIdInUse, TurnRejected
from dagwright.client.feedback.open_requests import Answer, RequestRef
from dagwright.client.starts import StartedRun
from dagwright.history.executions import RunNotFound
from dagwright.interfaces.http import run_preparation, run_requests
from dagwright.interfaces.http.app import create_app
from dagwright.interfaces.http.callers import KeyScope
from dagwright.interfaces.http.context import GatewayContext, open_context
from dagwright.interfaces.http.feedback_calls import question_call
from dagwright.interfaces.http.run_preparation import run_id_of_key
from dagwright.protocol.run_labels import ALL_OWNERS
from dagwright.server import Connection, Server
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from tests.support.eventually import eventually
from tests.support.http_servers import serve_for_client
from tests.support.templates import load_templates
from tests.unit.interfaces.http.conftest import message_of, status_and_code_of, write_plan

pytestmark = pytest.mark.waits

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
IDEMPOTENCY_KEY = "a-key"
RUN_ID = run_id_of_key(IDEMPOTENCY_KEY)
QUESTION = {"request_id": "check", "type": "CLARIFICATION", "prompt": "Who?", "opened_at": "2026-01-01T00:00:00Z"}
ADD_PLAN = {"plan": 1, "nodes": [{"id": "add", "tool": "calculator", "arguments": {"expression": "1 + 2"}}]}


class _Server:
    """Fake server with one session. The test ends the previous turn of the session.

    Attributes:
        previous_turn_ended: set by the test to end the previous turn.
        may_confirm: set while the server confirms turns and answers. A turn starts even without a confirmation.
        rejection: error of each turn and answer; `None` if they are accepted.
        received_count: number of requested turns and answers.
        previous_run_id: ID of the run of the previous turn.
    """

    def __init__(self) -> None:
        self.previous_turn_ended, self.may_confirm = asyncio.Event(), asyncio.Event()
        self.may_confirm.set()
        self.rejection: Exception | None = None
        self.received_count = 0
        self.previous_run_id = "run-before"
        self.started_runs: list[str] = []
        self.cancelled_runs: list[str] = []
        self.answers: list[Any] = []
        self.feedback = SimpleNamespace(requests_of=self._requests_of, answer=self._answer)
        self.subscriptions = SimpleNamespace(subscribe=self._subscribe)
        self.token_streams = SimpleNamespace(parts=self._subscribe, was_superseded=self._was_superseded)

    async def _confirm_request(self) -> None:
        await self.may_confirm.wait()
        if self.rejection is not None:
            raise self.rejection

    async def start_turn(self, name: str, prepare: Any, *, run_id: str, on_busy: Any) -> StartedRun:
        self.received_count += 1
        if not self.previous_turn_ended.is_set():
            raise TurnRejected("session_busy", f"the session {name!r} is at work", self.previous_run_id)
        self.started_runs.append(run_id)
        await self._confirm_request()
        return StartedRun(run_id, "execution", is_new=True)

    async def session_name_of(self, run_id: str) -> None:
        if run_id not in (*self.started_runs, "run-asking"):
            raise RunNotFound(f"there is no run {run_id!r}")

    owner_of = session_name_of

    async def cancel(self, run_id: str, actor: Any) -> str:
        await self.session_name_of(run_id)
        self.cancelled_runs.append(run_id)
        return "cancelled"

    async def used_up_budget_text(self, owner: str) -> str | None:
        return None

    async def count_open_runs(self, owner: str, *, excluded_ids: Any = ()) -> int:
        return 0

    async def _requests_of(self, run_id: str) -> list[Any]:
        request_ref = RequestRef(run_id, "check")
        return (
            [SimpleNamespace(id="check", document=QUESTION, request_ref=request_ref)] if run_id == "run-asking" else []
        )

    async def _answer(self, request_ref: RequestRef, answer: Answer) -> None:
        self.received_count += 1
        await self._confirm_request()
        self.answers.append((request_ref.run_id, answer.content))

    async def _was_superseded(self, run_id: str, mark: Any) -> bool:
        return False

    async def _subscribe(self, run_id: str, reported: Any = None, *, after: Any = None) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield


@dataclass(slots=True)
class _CountingApp:
    app: ASGIApp
    active_requests: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.active_requests += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.active_requests -= 1


@dataclass(frozen=True, slots=True)
class _Gateway:
    context: GatewayContext
    server: _Server
    app: _CountingApp
    http: httpx.AsyncClient

    async def send(self, path: str, **options: Any) -> httpx.Response:
        return await self.http.post(path, **_request(path, **options))

    async def send_and_disconnect(self, path: str, **options: Any) -> None:
        """Request a turn of the session, or answer a question. Disconnect once the server has received the request."""
        request_task = asyncio.create_task(self.send(path, **options))
        await eventually(lambda: self.server.received_count > 0)
        request_task.cancel()
        with suppress(asyncio.CancelledError):
            await request_task
        await eventually(lambda: self.app.active_requests == 0)


def _request(path: str, *, stream: bool, cancel_on_disconnect: bool = False, is_answer: bool = False) -> dict[str, Any]:
    message: dict[str, Any] = {"messages": [{"role": "user", "content": "{}"}]}
    if path == RESPONSES:
        message = {"input": "{}"}
    elif is_answer:
        call = question_call(QUESTION, run_id="run-asking")
        message["messages"].append({"role": "assistant", "content": None, "tool_calls": [call]})
        message["messages"].append({"role": "tool", "tool_call_id": call["id"], "content": "Apex"})
    fields = {"stream": stream, "session_id": "long", "cancel_on_disconnect": cancel_on_disconnect}
    return {"json": {"model": "plan/add", **fields, **message}, "headers": {"Idempotency-Key": IDEMPOTENCY_KEY}}


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream starts shortly after its turn was queued, and a turn polls the session frequently."""
    monkeypatch.setattr(run_requests, "START_WAIT_S", 0.05)
    monkeypatch.setattr(run_preparation, "POLL_INTERVAL_S", 0.02)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[_Gateway]:
    settings = Settings(state_dir=tmp_path / "state")
    toolset = load_toolset(settings)
    templates = load_templates(write_plan(tmp_path / "plans", ADD_PLAN, "add.json"), toolset.declarations())
    connection = Connection(cast("Any", None), Server("nowhere", "default"), frozenset())
    server = cast("Any", _Server())
    async with open_context(settings, connection, toolset, templates=templates) as opened_context:
        context = replace(opened_context, runs=server, sessions=server, steering=server)
        app = _CountingApp(create_app(context))
        async with serve_for_client(app, stop_event=context.stop_event) as http:
            try:
                yield _Gateway(context, server, app, http)
            finally:
                # Waiting tasks end, even if the test failed.
                server.previous_turn_ended.set()
                server.may_confirm.set()


each_path = pytest.mark.parametrize("path", [CHAT, RESPONSES])
with_and_without_stream = pytest.mark.parametrize("stream", [False, True])


@each_path
@with_and_without_stream
@pytest.mark.parametrize(("cancel_on_disconnect", "started_runs"), [(False, [RUN_ID]), (True, [])])
async def test_turn_of_a_disconnected_client_starts_unless_cancel_on_disconnect_is_set(
    gateway: _Gateway, path: str, stream: bool, cancel_on_disconnect: bool, started_runs: list[str]
) -> None:
    await gateway.send_and_disconnect(path, stream=stream, cancel_on_disconnect=cancel_on_disconnect)
    assert gateway.server.started_runs == []
    gateway.server.previous_turn_ended.set()
    await gateway.context.finish()
    assert (gateway.server.started_runs, gateway.server.cancelled_runs) == (started_runs, [])


@with_and_without_stream
async def test_answer_of_a_disconnected_client_is_applied(gateway: _Gateway, stream: bool) -> None:
    await _disconnect_early(gateway, CHAT, stream=stream, is_answer=True)
    assert gateway.server.answers == [("run-asking", {"text": "Apex"})]


async def _disconnect_early(gateway: _Gateway, path: str, **options: Any) -> None:
    """Disconnect before the server has confirmed the turn or answer."""
    gateway.server.may_confirm.clear()
    await gateway.send_and_disconnect(path, **options)
    assert gateway.server.cancelled_runs == []
    gateway.server.may_confirm.set()
    await gateway.context.finish()


@each_path
@with_and_without_stream
@pytest.mark.parametrize(
    ("rejection", "cancelled_runs"),
    [(None, [RUN_ID]), (RunIdInUse(f"the id {RUN_ID!r} belongs to another run"), [])],
    ids=["run of this request", "run of another request"],
)
async def test_run_of_a_disconnected_client_is_cancelled_unless_another_request_started_it(
    gateway: _Gateway, path: str, stream: bool, rejection: Any, cancelled_runs: list[str]
) -> None:
    gateway.server.rejection = rejection
    gateway.server.previous_turn_ended.set()
    await _disconnect_early(gateway, path, stream=stream, cancel_on_disconnect=True)
    assert (gateway.server.started_runs, gateway.server.cancelled_runs) == ([RUN_ID], cancelled_runs)


@pytest.mark.parametrize(("rejection", "cancelled_runs"), [(None, ["run-asking"]), (FeedbackRejected("no"), [])])
async def test_run_is_cancelled_after_a_disconnect_only_if_it_accepted_the_answer(
    gateway: _Gateway, rejection: Any, cancelled_runs: list[str]
) -> None:
    gateway.server.rejection = rejection
    await _disconnect_early(gateway, CHAT, stream=False, cancel_on_disconnect=True, is_answer=True)
    assert gateway.server.cancelled_runs == cancelled_runs


@pytest.mark.parametrize(("scope", "is_answer"), [(KeyScope.ANSWER, True), (KeyScope.RUN, False)])
@with_and_without_stream
async def test_cancel_on_disconnect_needs_the_scope_operate(
    gateway: _Gateway, scope: KeyScope, *, is_answer: bool, stream: bool
) -> None:
    _, key = gateway.context.keys.add(ALL_OWNERS, [scope])
    request = _request(CHAT, stream=stream, cancel_on_disconnect=True, is_answer=is_answer)
    request["headers"]["Authorization"] = f"Bearer {key}"
    response = await gateway.http.post(CHAT, **request)
    assert (response.status_code, "operate" in message_of(response)) == (403, True)
    assert gateway.server.received_count == 0


@each_path
async def test_client_without_an_idempotency_key_resumes_a_waiting_turn(gateway: _Gateway, path: str) -> None:
    request = _request(path, stream=True)
    del request["headers"]
    async with gateway.http.stream("POST", path, **request) as response:
        run_id = response.headers["x-run-id"]
        lines = response.aiter_lines()
        while not (id_line := await anext(lines)).startswith("id: "):
            pass
    await eventually(lambda: gateway.app.active_requests == 0)
    headers = {"Last-Event-ID": id_line.removeprefix("id: ")}
    async with gateway.http.stream("POST", path, **request, headers=headers) as response:
        ids = (response.headers["x-run-id"], response.headers["x-session-id"])
        assert (response.status_code, ids) == (200, (run_id, "long"))
        gateway.server.previous_turn_ended.set()
        await eventually(lambda: gateway.server.started_runs == [run_id])
    await gateway.context.finish()
    assert (gateway.server.started_runs, gateway.context.active_starts) == ([run_id], [])


async def test_rejected_turn_names_the_way_to_answer_the_open_request(gateway: _Gateway) -> None:
    gateway.server.previous_run_id = "run-asking"
    response = await gateway.send(CHAT, stream=False)
    assert status_and_code_of(response) == (409, "session_waits_for_answer")
    assert "POST /v1/runs/run-asking/feedback" in message_of(response)


async def _start_background_response(gateway: _Gateway) -> str:
    """Request a background response whose turn waits, and return its URL."""
    request = _request(RESPONSES, stream=False)
    request["json"]["background"] = True
    response = await gateway.http.post(RESPONSES, **request)
    assert (response.status_code, response.json()["status"]) == (200, "in_progress")
    return f"{RESPONSES}/{response.json()['id']}"


async def test_waiting_background_response_is_found_and_cancelled_before_its_turn_starts(gateway: _Gateway) -> None:
    url = await _start_background_response(gateway)
    document = (await gateway.http.get(url)).json()
    expected = {"run_id": RUN_ID, "session_id": "long", "status": "running"}
    assert (document["status"], document["dagwright"]) == ("in_progress", expected)
    cancel_response = await gateway.http.post(f"{url}/cancel")
    assert (cancel_response.status_code, cancel_response.json()["status"]) == (200, "cancelled")
    gateway.server.previous_turn_ended.set()
    await gateway.context.finish()
    assert (gateway.server.started_runs, gateway.server.cancelled_runs) == ([], [])


async def test_waiting_turn_is_found_only_by_its_owner(gateway: _Gateway) -> None:
    ann, bob = (gateway.context.keys.add(owner, list(KeyScope))[1] for owner in ("waiting-ann", "waiting-bob"))
    gateway.http.headers["Authorization"] = f"Bearer {ann}"
    url = await _start_background_response(gateway)
    assert (await gateway.http.get(url)).status_code == 200
    gateway.http.headers["Authorization"] = f"Bearer {bob}"
    assert (await gateway.http.get(url)).status_code == 404
    assert (await gateway.http.post(f"{url}/cancel")).status_code == 404


async def _finish_and_check_that_no_run_started(gateway: _Gateway) -> None:
    await asyncio.wait_for(gateway.context.finish(), 60)
    assert gateway.server.started_runs == []


@each_path
async def test_stopping_gateway_rejects_waiting_turns(gateway: _Gateway, path: str) -> None:
    request_task = asyncio.create_task(gateway.send(path, stream=False))
    await eventually(lambda: gateway.server.received_count > 0)
    gateway.context.stop_event.set()
    response = await request_task
    await _finish_and_check_that_no_run_started(gateway)
    assert status_and_code_of(response) == (503, "draining")
    assert "nothing was started, send the request again" in message_of(response)
    # Clients retry a response without this header.
    assert "x-should-retry" not in response.headers


@each_path
async def test_stopping_gateway_ends_open_streams_of_waiting_turns(gateway: _Gateway, path: str) -> None:
    async with gateway.http.stream("POST", path, **_request(path, stream=True)) as response:
        await eventually(lambda: gateway.server.received_count > 0)
        gateway.context.stop_event.set()
        text = (await response.aread()).decode()
    await _finish_and_check_that_no_run_started(gateway)
    assert response.status_code == 200
    assert not any(end in text for end in ("[DONE]", "response.completed", "response.failed"))
