"""Interrupted streams of answers resume at any gateway without lost or repeated text."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from temporalio.service import RPCError, RPCStatusCode

from dagwright.client import run_follower
from dagwright.core.model.states import NodeStatus
from dagwright.history.run_subscriptions import RunUpdate, SubscriptionCursor
from dagwright.history.run_view import RunView
from dagwright.history.text_stream import PartialText
from dagwright.interfaces.http.answer_stream import ANSWER_RESTARTS, NEXT_TURN
from dagwright.interfaces.http.examples import PUBLISHED_PLAN
from dagwright.interfaces.http.response_items import ResponseRef
from dagwright.interfaces.http.run_preparation import run_id_of_key
from tests.support.gateway import Event, assert_sequence_numbers_increase, events_of
from tests.support.scripted_run import RUN_ID, FakeRequestPoller, ScriptedRun, Step, approval_requests, scripted_gateway
from tests.unit.interfaces.http.conftest import (
    status_and_code_of,
    status_and_param_of,
    status_code_and_param_of,
    write_plan,
)

pytestmark = pytest.mark.waits

READY, RUNNING, DONE = (NodeStatus.READY, 0), (NodeStatus.RUNNING, 1), (NodeStatus.COMPLETED, 1)
RETRYING = (NodeStatus.READY, 1)
ANSWER_TEXT = "Oslo has rain today, and Bergen has more of it."
STEPS = (
    Step(3, {"sum": READY}),
    Step(8, {"sum": RUNNING, "more": RUNNING}),
    Step(12, {"sum": RETRYING, "more": RUNNING}),
    Step(17, {"sum": RUNNING, "more": DONE, "answer": RUNNING}),
    Step(24, {"sum": DONE, "more": DONE, "answer": RUNNING}),
    Step(31, {"sum": DONE, "more": DONE, "answer": DONE}, status="completed"),
)
TEXTS = tuple(PartialText("answer", 1, ANSWER_TEXT[:end]) for end in (4, 9, 21, 40))
ANSWERED_RUN = ScriptedRun(STEPS, TEXTS, ANSWER_TEXT)
WAITING_FIELDS = {"status": "waiting", "requests": approval_requests(["check", "name"])}
ASKING_RUN = ScriptedRun(
    (*STEPS[:4], Step(22, dict.fromkeys(("sum", "more", "answer"), DONE), **WAITING_FIELDS)),  # type: ignore[arg-type] # values of two types
    (PartialText("it/turn1", 1, "I found two."),),
    "",
)
RETRIED_TEXTS = (PartialText("answer", 2, "Osaka has sun,"), PartialText("answer", 2, "Osaka has sun, "))
TEXTS_OF_TURNS = (PartialText("it/turn1", 1, "Let me see."), PartialText("it/turn2", 1, "Os"))
ABANDONED_TEXTS = (
    PartialText("it/turn1", 1, "Osaka has"),
    *(PartialText("it/turn1", 2, ANSWER_TEXT[:end]) for end in (4, 21)),
)
RUNS = {
    "answered": ANSWERED_RUN,
    "asking": ASKING_RUN,
    "retried": ScriptedRun(STEPS, (*TEXTS[:3], *RETRIED_TEXTS), "Osaka has sun, all day."),
    "turns": ScriptedRun(STEPS, TEXTS_OF_TURNS, ANSWER_TEXT),
    "abandoned": ScriptedRun(STEPS, ABANDONED_TEXTS, ANSWER_TEXT, turn_results={"it/turn1": ANSWER_TEXT}),
}

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
each_path = pytest.mark.parametrize("path", [CHAT, RESPONSES])
BODY_FIELDS = {"model": "plan/double", "stream": True, "stream_progress": "progress"}
BODIES: Mapping[str, Any] = {
    CHAT: {"messages": [{"role": "user", "content": "{}"}], "stream_options": {"include_usage": True}, **BODY_FIELDS},
    RESPONSES: {"input": "{}", **BODY_FIELDS},
}
RESPONSE_ID = ResponseRef(RUN_ID, "plan/double").id
RESPONSE_URL = f"{RESPONSES}/{RESPONSE_ID}"
STREAM_PARAMS = {"stream": "true"}
TRANSIENT_EVENTS = ("node.ready", "run.running")
"""Events that a reconnecting client may miss."""
ID_PREFIXES = {CHAT: "c", RESPONSES: "r"}


Gateway = Callable[[ScriptedRun], AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture(autouse=True)
def use_fake_request_poller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_follower, "RequestPoller", FakeRequestPoller)


def first_event_id(path: str) -> str:
    return f"{RUN_ID}/{ID_PREFIXES[path]}1/1-0/0.0.00000000./0"


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    """Function that opens a gateway with a run and a published plan."""
    plans = write_plan(tmp_path / "plans", PUBLISHED_PLAN["plan"])
    numbers = count()
    return lambda run: scripted_gateway(run, tmp_path / f"state{next(numbers)}", plans=plans)


async def received_events(http: httpx.AsyncClient, path: str, after: str | None = None) -> list[Event]:
    """Return the events after an event, or all events of the answer."""
    response = await http.post(path, json=BODIES[path], headers={"Last-Event-ID": after or first_event_id(path)})
    assert response.status_code in (200, 204), response.text
    return events_of(response.text)


async def get_events(http: httpx.AsyncClient, url: str, headers: Any = None, **params: Any) -> list[Event]:
    response = await http.get(url, params=params, headers=headers)
    assert response.status_code in (200, 204), response.text
    return events_of(response.text)


def dict_contents_of(events: Sequence[Event]) -> list[dict[str, Any]]:
    return [event.content for event in events if isinstance(event.content, dict)]


def sequence_numbers_of(events: Sequence[Event]) -> list[int]:
    return [event.content["sequence_number"] for event in events]


def text_of(events: Sequence[Event]) -> str:
    contents = dict_contents_of(events)
    deltas = [choice["delta"].get("content") or "" for content in contents for choice in content.get("choices", ())]
    deltas += [content["delta"] for content in contents if content.get("type") == "response.output_text.delta"]
    return "".join(deltas)


def progress_of(events: Sequence[Event]) -> list[tuple[str, str | None]]:
    contents = dict_contents_of(events)
    entries = [event for content in contents for event in content.get("dagwright", {}).get("events", ())]
    return [
        (entry["type"], entry["node_id"] or entry["data"].get("request", {}).get("request_id")) for entry in entries
    ]


def other_events_of(events: Sequence[Event]) -> list[Any]:
    """Return the events that are neither text nor progress, without times and numbers."""
    entries: list[Any] = []
    for event in events:
        content = event.content
        if isinstance(content, str):
            entries.append(content)
        elif "choices" in content:
            if not content["choices"] or content["choices"][0]["finish_reason"] or "tool_calls" in str(content):
                entries.append((content["choices"], content.get("usage")))
        elif not content["type"].endswith("output_text.delta") and "dagwright" not in content:
            entries.append(content["type"])
    return entries


@each_path
@pytest.mark.parametrize("name", RUNS)
async def test_broken_stream_resumes_after_any_event_at_any_gateway(gateway: Gateway, path: str, name: str) -> None:
    run = replace(RUNS[name])
    async with gateway(run) as http:
        all_events = await received_events(http, path)
        ids = [event.id for event in all_events]
        assert None not in ids
        for cut_index, id in enumerate(ids):
            # The next gateway may start to read at the first step or at a later step.
            events_before = all_events[: cut_index + 1]
            reported_polls = max(sum(bool(text_of([event])) for event in events_before) - 1, 0)
            for first_step in (0, 2, 4, len(run.steps) - 1):
                run.first_step, run.skipped_polls = first_step, max(reported_polls, first_step)
                client_events = [*events_before, *await received_events(http, path, id)]
                assert_no_loss(run, client_events, all_events, (cut_index, first_step))
    assert run.started_ids == []


def assert_no_loss(
    run: ScriptedRun, client_events: Sequence[Event], all_events: Sequence[Event], position: tuple[int, int]
) -> None:
    """Check that a client whose stream broke got the same events as a client whose stream did not break."""
    progress, all_progress = progress_of(client_events), progress_of(all_events)
    progress_without_ready = [entry for entry in progress if entry[0] != "node.ready"]
    assert sorted(progress_without_ready) == sorted(set(progress_without_ready)), position
    lasting_progress = {entry for entry in all_progress if entry[0] not in TRANSIENT_EVENTS}
    assert lasting_progress <= set(progress) <= set(all_progress), position
    if run.first_step == 0:
        assert (text_of(client_events), sorted(progress)) == (text_of(all_events), sorted(all_progress)), position
    # The client may have missed texts before the answer.
    assert text_of(client_events).endswith(run.answer or "Check?\nName?"), position
    assert text_of(client_events).count(ANSWER_RESTARTS) <= text_of(all_events).count(ANSWER_RESTARTS), position
    assert other_events_of(client_events) == other_events_of(all_events), position


class FailingRun(ScriptedRun):
    """Run whose server fails once: after three updates, or at the first read of the answer."""

    __slots__ = ("failure_point", "has_failed")
    failure_point: str

    def _must_fail(self, point: str) -> bool:
        is_first = point == self.failure_point and not hasattr(self, "has_failed")
        if is_first:
            self.has_failed = True
        return is_first

    async def subscribe(
        self, run_id: str, *, after: SubscriptionCursor | None = None
    ) -> AsyncGenerator[RunUpdate, None]:
        must_fail, update_count = self._must_fail("update"), 0
        async with aclosing(super().subscribe(run_id, after=after)) as updates:
            async for update in updates:
                yield update
                update_count += 1
                if must_fail and update_count == 3:
                    raise RPCError("no", RPCStatusCode.UNAVAILABLE, b"")

    async def document(self, view: RunView) -> dict[str, Any]:
        if self._must_fail("answer"):
            raise RPCError("no", RPCStatusCode.UNAVAILABLE, b"")
        return await super().document(view)


def failing_run(failure_point: str) -> FailingRun:
    run = FailingRun(STEPS, TEXTS, ANSWER_TEXT)
    run.failure_point = failure_point
    return run


@pytest.mark.parametrize(("path", "cursor_kind"), [(CHAT, "id"), (RESPONSES, "id"), (RESPONSES, "number")])
async def test_stream_resumes_after_a_transient_failure(gateway: Gateway, path: str, cursor_kind: str) -> None:
    run = failing_run("update")
    async with gateway(run) as http:
        first_events = await received_events(http, path)
        assert "does not respond" in str(first_events[-1 if path == RESPONSES else -2].content)
        run.first_step, run.skipped_polls = 2, 2
        if cursor_kind == "id":
            rest_events = await received_events(http, path, first_events[-1].id)
        else:
            (number,) = sequence_numbers_of(first_events[-1:])
            rest_events = await get_events(http, RESPONSE_URL, **STREAM_PARAMS, starting_after=number)
    assert 0 < len(text_of(first_events)) < len(ANSWER_TEXT)
    assert text_of([*first_events, *rest_events]) == ANSWER_TEXT
    assert str(rest_events[-1].content).startswith("[DONE]" if path == CHAT else "{'type': 'response.completed'")


@each_path
async def test_stream_ends_after_an_answer_that_was_read_at_the_second_attempt(gateway: Gateway, path: str) -> None:
    async with gateway(failing_run("answer")) as http:
        first_events = await received_events(http, path)
        rest_events = await received_events(http, path, first_events[-1].id)
    run_end_counts = [
        sum("run.completed" in str(progress_of([event])) for event in events) for events in (first_events, rest_events)
    ]
    assert run_end_counts == [0, 1]
    assert text_of([*first_events, *rest_events]) == ANSWER_TEXT


@each_path
async def test_failure_of_a_run_ends_the_stream_and_is_reported_once(gateway: Gateway, path: str) -> None:
    run = ScriptedRun((*STEPS[:4], replace(STEPS[5], status="failed")), TEXTS, "")
    async with gateway(run) as http:
        all_events = await received_events(http, path)
        assert "failed" in str(all_events[-2 if path == CHAT else -1].content)
        assert await received_events(http, path, all_events[-1].id) == []


@pytest.mark.parametrize(("name", "status_codes"), [("answered", [200, 204]), ("asking", [200, 200])])
async def test_client_that_has_received_the_end_gets_no_content(
    gateway: Gateway, name: str, status_codes: list[int]
) -> None:
    async with gateway(RUNS[name]) as http:
        for path, params in ((f"/v1/runs/{RUN_ID}/answer", {}), (RESPONSE_URL, STREAM_PARAMS)):
            all_events = await get_events(http, path, **params)
            ids = [str(event.id) for event in all_events[-2:]]
            responses = [await http.get(path, params=params, headers={"Last-Event-ID": id}) for id in ids]
            assert [response.status_code for response in responses] == status_codes, path
            assert (responses[0].text != "", responses[1].text) == (True, ""), path
        (number,) = sequence_numbers_of(all_events[-1:])
        later_response = await http.get(RESPONSE_URL, params={**STREAM_PARAMS, "starting_after": str(number)})
        assert (later_response.status_code, later_response.text) == (200, "")


async def test_complete_stream_has_the_whole_text(gateway: Gateway) -> None:
    texts = {}
    for name, run in RUNS.items():
        async with gateway(run) as http:
            texts[name] = text_of(await received_events(http, CHAT))
    assert texts == {
        "answered": ANSWER_TEXT,
        "asking": f"I found two.{NEXT_TURN}Check?\nName?",
        "retried": f"{ANSWER_TEXT[:21]}{ANSWER_RESTARTS}Osaka has sun, all day.",
        "turns": f"Let me see.{NEXT_TURN}{ANSWER_TEXT}",
        "abandoned": f"Osaka has{ANSWER_RESTARTS}{ANSWER_TEXT}",
    }


@each_path
@pytest.mark.parametrize("name", list(RUNS))
async def test_run_starts_before_its_nodes_and_ends_after_its_answer(gateway: Gateway, path: str, name: str) -> None:
    async with gateway(RUNS[name]) as http:
        all_events = await received_events(http, path)
    last_text_position = max(position for position, event in enumerate(all_events) if text_of([event]))
    progress_after_text = [progress_of([event]) for event in all_events[last_text_position + 1 :]]
    (end_progress,) = [progress for progress in progress_after_text if progress]
    expected = [*["feedback.requested"] * 2, "run.waiting"] if name == "asking" else ["run.completed"]
    assert [entry[0] for entry in end_progress] == expected
    assert progress_of(all_events)[0][0] == "run.running"
    assert progress_of(all_events)[-1] == end_progress[-1]


@each_path
@pytest.mark.parametrize("skipped_polls", [1, 2, 3])
async def test_reconnecting_client_gets_the_restart_of_an_abandoned_turn(
    gateway: Gateway, path: str, skipped_polls: int
) -> None:
    run = replace(RUNS["abandoned"])
    async with gateway(run) as http:
        all_events = await received_events(http, path)
        cut_index = next(number for number, event in enumerate(all_events) if text_of([event]) == "Osaka has")
        run.skipped_polls = skipped_polls
        for first_step in (0, len(run.steps) - 1):
            run.first_step = first_step
            later_events = await received_events(http, path, all_events[cut_index].id)
            text = text_of([*all_events[: cut_index + 1], *later_events])
            assert text == text_of(all_events) == f"Osaka has{ANSWER_RESTARTS}{ANSWER_TEXT}"


@pytest.mark.parametrize("name", ["answered", "asking"])
async def test_response_stream_resumes_after_any_sequence_number(gateway: Gateway, name: str) -> None:
    run = RUNS[name]
    async with gateway(run) as http:
        events = await get_events(http, RESPONSE_URL, **STREAM_PARAMS)
        progress_events = await get_events(http, RESPONSE_URL, {"X-Stream-Progress": "full"}, **STREAM_PARAMS)
        numbers = sequence_numbers_of(events)
        assert numbers == sorted(set(numbers))
        assert events[0].content["type"] == "response.created"
        assert events[-1].content["response"]["output"][0]["content"][0]["text"] == (run.answer or "Check?\nName?")
        assert ("node.completed", "sum") in progress_of(progress_events)
        assert_sequence_numbers_increase(
            [(event.content["sequence_number"], "dagwright" in event.content) for event in progress_events]
        )
        for cut_index, number in enumerate(numbers):
            events_before = events[: cut_index + 1]
            later_events = await get_events(http, RESPONSE_URL, **STREAM_PARAMS, starting_after=number)
            client_events = [*events_before, *later_events]
            assert sequence_numbers_of(client_events) == numbers or name == "answered"
            assert text_of(client_events) == text_of(events), cut_index
            assert other_events_of(client_events) == other_events_of(events), cut_index
            later_events = await get_events(
                http, RESPONSE_URL, {"Last-Event-ID": str(events_before[-1].id)}, **STREAM_PARAMS
            )
            assert text_of([*events_before, *later_events]) == text_of(events), cut_index


async def test_sequence_number_of_another_answer_restarts_the_text(gateway: Gateway) -> None:
    async with gateway(replace(ANSWERED_RUN, texts=(PartialText("answer", 1, "Osaka"),))) as http:
        events = await get_events(http, RESPONSE_URL, **STREAM_PARAMS)
        number = next(event.content["sequence_number"] for event in events if event.content.get("delta") == "Osaka")
    async with gateway(replace(ANSWERED_RUN, texts=TEXTS[3:])) as http:
        later_events = await get_events(http, RESPONSE_URL, **STREAM_PARAMS, starting_after=number)
    assert text_of(later_events) == f"{ANSWER_RESTARTS}{ANSWER_TEXT}"


@pytest.mark.parametrize("stream", [False, True])
@each_path
async def test_event_id_with_its_idempotency_key_starts_a_missing_run_once(
    gateway: Gateway, path: str, *, stream: bool
) -> None:
    key = "key-of-a-waiting-turn"
    run = replace(ANSWERED_RUN, started_ids=[])
    id = first_event_id(path).replace(RUN_ID, run_id_of_key(key))

    async def post(id: str, **headers: str) -> httpx.Response:
        return await http.post(path, json={**BODIES[path], "stream": stream}, headers={"Last-Event-ID": id, **headers})

    async with gateway(run) as http:
        joined_response = await post(first_event_id(path))
        assert (joined_response.status_code, joined_response.headers["x-run-id"]) == (200, RUN_ID)
        assert status_and_code_of(await post(id)) == (404, "not_found")
        assert status_and_param_of(await post(id, **{"Idempotency-Key": "another"})) == (400, "Last-Event-ID")
        assert run.started_ids == []
        for _ in range(2):
            response = await post(id, **{"Idempotency-Key": key})
            assert (response.status_code, response.headers["x-run-id"]) == (200, run_id_of_key(key))
            assert run.started_ids == [run_id_of_key(key)]


@each_path
@pytest.mark.parametrize(
    "id",
    [
        "bogus",
        "1-145",
        "run-1/1-5/3",
        "run-1/x1/1-0/0.0.00000000./0",
        "run-1/c9/1-0/0.0.00000000./0",
        "run-1/c1/1-0/3.9.00000000./0",
        "run-1/c1/0-0/0.0.00000000./0",
        "/c1/1-0/0.0.00000000./0",
        "run%0a/c1/1-0/0.0.00000000./0",
        "run-1/c1/1-0/0.0.0000000g./0",
    ],
)
async def test_invalid_event_id_is_rejected(offline_http: httpx.AsyncClient, path: str, id: str) -> None:
    for model in ("plan/double", "small"):
        body = {**BODIES[path], "model": model}
        response = await offline_http.post(path, json=body, headers={"Last-Event-ID": id})
        assert status_code_and_param_of(response) == (400, "invalid_value", "Last-Event-ID")


async def test_event_id_of_another_stream_or_run_is_rejected(gateway: Gateway) -> None:
    async with gateway(ANSWERED_RUN) as http:
        for path, other_path in ((CHAT, RESPONSES), (RESPONSES, CHAT)):
            response = await http.post(path, json=BODIES[path], headers={"Last-Event-ID": first_event_id(other_path)})
            assert response.status_code == 400
        for url, path in ((f"{RESPONSE_URL}?stream=true", RESPONSES), (f"/v1/runs/{RUN_ID}/answer", CHAT)):
            headers = {"Last-Event-ID": first_event_id(path).replace(RUN_ID, "run-2")}
            assert (await http.get(url, headers=headers)).status_code == 400
        for number in ("5", "-1", "x", "9" * 40):
            response = await http.get(RESPONSE_URL, params={"stream": "true", "starting_after": number})
            assert response.status_code == 400, number


async def test_answer_of_a_run_resumes_like_a_completion(gateway: Gateway) -> None:
    async with gateway(ANSWERED_RUN) as http:
        all_events = await get_events(http, f"/v1/runs/{RUN_ID}/answer")
        ids = [str(event.id) for event in all_events]
        rest_events = await get_events(http, f"/v1/runs/{RUN_ID}/answer", {"Last-Event-ID": ids[2]})
    assert text_of([*all_events[:3], *rest_events]) == ANSWER_TEXT
    assert ids[-1] not in ids[:-1]


@pytest.mark.parametrize("stream_url", [f"{RESPONSE_URL}?stream=true", f"/v1/runs/{RUN_ID}/answer"])
async def test_progress_is_selected_by_parameter_or_header(gateway: Gateway, stream_url: str) -> None:
    async with gateway(ANSWERED_RUN) as http:

        async def response_with(query: str | None, header: str | None) -> httpx.Response:
            params = {} if query is None else {"stream_progress": query}
            url = httpx.URL(stream_url).copy_merge_params(params)
            return await http.get(url, headers={} if header is None else {"X-Stream-Progress": header})

        async def progress_with(query: str | None, header: str | None) -> list[tuple[str, str | None]]:
            response = await response_with(query, header)
            assert response.status_code == 200, response.text
            return progress_of(events_of(response.text))

        for query, header in ((None, None), ("", None), ("progress", "content")):
            assert await progress_with(query, header) == []
        expected = await progress_with("progress", None)
        assert expected == await progress_with(None, "progress") == await progress_with("content", "progress") != []
        for query, header in (("all", None), (None, "all")):
            response = await response_with(query, header)
            assert status_and_param_of(response) == (400, "stream_progress")
            assert "content, progress, full" in response.json()["error"]["message"]


@each_path
async def test_request_to_a_model_does_not_resume_a_run(gateway: Gateway, path: str) -> None:
    headers, body = {"Last-Event-ID": first_event_id(path)}, {**BODIES[path], "model": "small"}
    async with gateway(ANSWERED_RUN) as http:
        response = await http.post(path, json=body, headers=headers)
        accepted_response = await http.post(path, json={**body, "routing_mode": "orchestration"}, headers=headers)
    assert status_and_param_of(response) == (400, "Last-Event-ID")
    assert (accepted_response.status_code, accepted_response.headers["x-run-id"]) == (200, RUN_ID)


async def test_number_of_choices_other_than_one_is_rejected(gateway: Gateway) -> None:
    body = {**BODIES[CHAT], "stream": False}
    run = replace(ANSWERED_RUN, started_ids=[])
    async with gateway(run) as http:
        for choices in (2, 0, True, False):
            response = await http.post(CHAT, json={**body, "n": choices})
            assert status_and_param_of(response) == (400, "n"), choices
        assert run.started_ids == []
        assert (await http.post(CHAT, json={**body, "n": 1})).status_code == 200


@pytest.mark.parametrize("progress", ["content", "progress", "full"])
async def test_stream_helper_of_the_python_client_ignores_progress(gateway: Gateway, progress: str) -> None:
    async with (
        gateway(ANSWERED_RUN) as http,
        openai.AsyncOpenAI(base_url=f"{http.base_url}/v1", api_key="none", max_retries=0) as client,
    ):
        progress_header = {"X-Stream-Progress": progress}
        headers = {"Last-Event-ID": first_event_id(RESPONSES), **progress_header}
        stream = await client.responses.retrieve(RESPONSE_ID, stream=True, extra_headers=headers)
        event_types = [event.type async for event in stream]
        # The helper needs the stream from its first event.
        async with client.responses.stream(response_id=RESPONSE_ID, extra_headers=progress_header) as helper:
            helper_events = [event async for event in helper]
            final_response = await helper.get_final_response()
    progress_events = [event for event in helper_events if "dagwright" in (event.model_extra or {})]
    assert (final_response.output_text, event_types[-1]) == (ANSWER_TEXT, "response.completed")
    assert {event.type for event in progress_events} == ({"response.in_progress"} if progress != "content" else set())
