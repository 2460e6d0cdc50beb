"""Streamed text of a running model call: shared polls, the poll rate, and the text in a run description."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from dagwright.core.expressions.references import ResultOf
from dagwright.core.expressions.stored_values import StoredValue
from dagwright.core.model.compiled import CompiledPlan
from dagwright.features.run_scheduler import RunScheduler
from dagwright.history.executions import RunNotFound
from dagwright.history.run_subscriptions import RunSubscriptions
from dagwright.history.run_view import RunView
from dagwright.history.text_stream import DeliveredText, PartialText, PartialTexts, TextMark, TextPart, text_checksum
from dagwright.history.token_streams import (
    MAX_PARTS_PER_S,
    MAX_POLLS_PER_S,
    NEXT_PAUSE_S,
    TokenStreams,
    answering_node,
    is_superseded,
    newest_text_call,
)
from dagwright.planning.model_calls.heartbeat_text import HeartbeatText, heartbeat_text_from_json, tail_for_heartbeat
from dagwright.planning.model_calls.model_requests import Message, ModelResponse, response_to_json
from dagwright.protocol.conversion import data_converter
from tests.support.eventually import eventually
from tests.support.plan_building import node
from tests.unit.interfaces.cli.views import START, start_all_ready_tasks, view_of


def _pending_call(
    activity_id: str, *details: Any, activity_type: str = "call_model", at_s: int = 1
) -> PendingActivityInfo:
    call = PendingActivityInfo(activity_id=activity_id)
    call.activity_type.name = activity_type
    call.scheduled_time.seconds = at_s
    payloads = [Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(detail).encode()) for detail in details]
    call.heartbeat_details.payloads.extend(payloads)
    return call


def _pending_text_call(activity_id: str, text: str, *, attempt: int = 1, at_s: int = 1) -> PendingActivityInfo:
    return _pending_call(activity_id, None, None, None, tail_for_heartbeat(text, attempt=attempt).to_json(), at_s=at_s)


class _FakeServer:
    """Fake client and subscriptions of one run. The test sets the description of the run and ends the subscriptions."""

    data_converter = data_converter
    open_reader: Any

    def __init__(self, *, is_known: bool = True) -> None:
        self.description = DescribeWorkflowExecutionResponse()
        self.poll_count = self.subscription_count = 0
        self.end_event = asyncio.Event()
        self._is_known, self._is_disconnected = is_known, False
        self.view: RunView | None = None

    def disconnect(self) -> None:
        self._is_disconnected = True
        self.end_event.set()

    def get_workflow_handle(self, _: str) -> "_FakeServer":
        return self

    async def describe(self) -> Any:
        self.poll_count += 1
        return SimpleNamespace(raw_description=self.description)

    async def subscribe(self, run_id: str) -> AsyncGenerator[Any, None]:
        if not self._is_known:
            raise RunNotFound(f"there is no run {run_id!r}")
        self.subscription_count += 1
        yield SimpleNamespace(view=self.view, changed_ids=("answer",))
        await self.end_event.wait()
        if self._is_disconnected:
            raise RPCError("gone", RPCStatusCode.UNAVAILABLE, b"")

    def stream(self, text: str) -> None:
        self.description = DescribeWorkflowExecutionResponse(pending_activities=[_pending_text_call("answer", text)])

    def token_streams(self) -> TokenStreams:
        return TokenStreams(cast("Client", self), cast("RunSubscriptions", self))


async def _read(streams: TokenStreams, parts: list[TextPart]) -> None:
    async for part in streams.parts("run", DeliveredText()):
        parts.append(part)


async def test_readers_of_a_run_share_the_polls() -> None:
    server = _FakeServer()
    streams = server.token_streams()
    parts_by_reader: list[list[TextPart]] = [[] for _ in range(50)]
    reader_tasks = [asyncio.create_task(_read(streams, parts)) for parts in parts_by_reader]
    server.stream("Oslo")
    await eventually(lambda: all(parts_by_reader))
    server.stream("Oslo has")
    await eventually(lambda: all(len(parts) == 2 for parts in parts_by_reader))
    polls_before_end = server.poll_count
    server.end_event.set()
    await asyncio.gather(*reader_tasks)
    assert parts_by_reader == [[TextPart("answer", 1, 0, "Oslo"), TextPart("answer", 1, 4, " has")]] * 50
    assert server.subscription_count == 1
    # Polls are shared: even on a slow machine there are fewer polls than readers.
    assert polls_before_end < 50


def _answer(text: str, **fields: Any) -> Any:
    return response_to_json(ModelResponse(Message(role="assistant", content=text), **fields))


FORM_OUTPUT = {"answer": "Oslo has.", "missing": []}


@pytest.mark.parametrize(
    ("answer", "streamed_text", "expected_texts"),
    [
        (_answer("Let me look."), "Let me", ["Let me", " look."]),
        (_answer("Let me [[FEEDBACK x: y?]]"), "Let me", ["Let me", " "]),
        (_answer("{}"), "Let me", ["Let me"]),
        (_answer(json.dumps(FORM_OUTPUT), output=FORM_OUTPUT), "", ["Oslo has."]),
    ],
)
async def test_remaining_text_of_an_ended_call_is_taken_from_its_result(
    answer: Any, streamed_text: str, expected_texts: list[str]
) -> None:
    server = _FakeServer()
    server.view = view_of(node("answer"), step=lambda scheduler: scheduler.complete("answer", answer, at=START))
    server.stream(streamed_text)
    parts: list[TextPart] = []
    reader_task = asyncio.create_task(_read(server.token_streams(), parts))
    await eventually(lambda: server.poll_count > 1 and len(parts) == bool(streamed_text))
    server.description = DescribeWorkflowExecutionResponse()
    polls_before = server.poll_count
    await eventually(lambda: server.poll_count > polls_before + 1)
    server.end_event.set()
    await reader_task
    assert [part.text for part in parts] == expected_texts


async def test_polling_ends_with_the_last_reader() -> None:
    server = _FakeServer()
    streams = server.token_streams()
    server.stream("Oslo")
    tasks_before = asyncio.all_tasks()
    async with aclosing(streams.parts("run", DeliveredText())) as parts:
        assert (await anext(parts)).text == "Oslo"
    await eventually(lambda: asyncio.all_tasks() == tasks_before)
    async with aclosing(streams.parts("run", DeliveredText())) as parts:
        assert (await anext(parts)).text == "Oslo"
    assert server.subscription_count == 2


async def test_reading_an_unknown_run_is_an_error() -> None:
    with pytest.raises(RunNotFound):
        await _read(_FakeServer(is_known=False).token_streams(), [])


async def test_new_reader_polls_again_after_a_connection_failure() -> None:
    server = _FakeServer()
    streams = server.token_streams()
    server.stream("Oslo")
    async with aclosing(streams.parts("run", DeliveredText())) as slow_reader:
        await anext(slow_reader)
        server.disconnect()
        with pytest.raises(RPCError):
            await _read(streams, [])
        server.end_event.clear()
        async with aclosing(streams.parts("run", DeliveredText())) as new_reader:
            assert (await anext(new_reader)).text == "Oslo"
        with pytest.raises(RPCError):
            await anext(slow_reader)


@pytest.mark.parametrize(("run_count", "pause_s"), [(1, NEXT_PAUSE_S), (20, NEXT_PAUSE_S), (200, 1.0)])
def test_poll_rate_of_all_runs_is_limited(run_count: int, pause_s: float) -> None:
    streams = _FakeServer().token_streams()
    pauses = [streams.poll_pause(NEXT_PAUSE_S) for _ in range(run_count)]
    pauses_s = [pause.__enter__() for pause in pauses]
    assert pauses_s[-1] == pytest.approx(pause_s)
    assert run_count / pauses_s[-1] <= MAX_POLLS_PER_S + 1e-6
    for pause in pauses:
        pause.__exit__(None, None, None)
    with streams.poll_pause(NEXT_PAUSE_S) as next_pause_s:
        assert next_pause_s == pytest.approx(NEXT_PAUSE_S)


async def test_poll_pause_grows_with_the_number_of_readers() -> None:
    server = _FakeServer()
    streams, reader_count = server.token_streams(), int(MAX_PARTS_PER_S * NEXT_PAUSE_S * 2)
    reader_tasks = [asyncio.create_task(_read(streams, [])) for _ in range(reader_count)]
    await eventually(lambda: server.poll_count > 0)
    with streams.poll_pause(NEXT_PAUSE_S) as pause_s:
        assert pause_s == pytest.approx(2 * NEXT_PAUSE_S)
    server.end_event.set()
    await asyncio.gather(*reader_tasks)


def test_newest_model_call_with_text_is_found() -> None:
    text = {"text": "x", "from": 0, "attempt": 1}
    other_calls = [
        _pending_call("plan", None, None, {"usage": {}}),
        _pending_call("tool", *[text] * 4, activity_type="echo"),
    ]
    assert newest_text_call(other_calls) is None
    text_calls = [_pending_text_call("answer", "Os"), _pending_text_call("answer#2", "", at_s=2)]
    assert newest_text_call([*other_calls, *text_calls]) == ("answer#2", HeartbeatText(1, 0, ""))
    call = _pending_text_call("answer", "Os")
    call.heartbeat_details.payloads[3].data = b"{"
    assert newest_text_call([call]) is None


WHOLE_RESULT = ResultOf("a", "result")


@pytest.mark.parametrize(
    ("bindings", "expected"),
    [
        ((((), (WHOLE_RESULT,)),), "a"),
        ((((), (ResultOf("a", "result", ("answer",)),)),), None),
        ((((), ("It says: ", WHOLE_RESULT)),), None),
        (((("text",), (WHOLE_RESULT,)),), None),
        ((((), (ResultOf("a", "status"),)),), None),
        ((), None),
    ],
)
def test_answering_node_is_the_node_whose_result_is_the_output(bindings: Any, expected: str | None) -> None:
    assert answering_node(CompiledPlan(nodes=(), tools={}, output_bindings=bindings)) == expected


def _mark_of(text: str) -> TextMark:
    return TextMark("it/turn1", len(text), text_checksum(text))


def _ended_agent_run(*results: Any) -> RunView:
    """Return the run of an agent whose turns completed with these results."""
    names = [f"turn{number}" for number in range(1, len(results) + 1)]

    def complete_turns(scheduler: RunScheduler) -> None:
        for name, result in zip(names, results, strict=True):
            start_all_ready_tasks(scheduler)
            scheduler.complete(name, result, at=START)

    return view_of(*(node(name, *names[:index]) for index, name in enumerate(names)), step=complete_turns)


def test_text_is_superseded_if_the_result_of_its_turn_is_another_text() -> None:
    view = _ended_agent_run(_answer("Let me see."), _answer("Four."))
    assert not is_superseded(view, "turn1", _mark_of("Let me"))
    assert is_superseded(view, "turn1", _mark_of("I will"))
    # The node has not ended.
    assert not is_superseded(view_of(node("turn1")), "turn1", _mark_of("I will"))
    # The last call of the node is `turn1`: text of another call is superseded.
    assert is_superseded(view, "turn1#2", _mark_of("Let me"))
    assert is_superseded(view, "turn2", _mark_of("Fi"))
    # The text of a stored result is unknown. A stored result supersedes the streamed text only in the last turn.
    stored_result = StoredValue("v1/ref")
    assert is_superseded(_ended_agent_run(stored_result), "turn1", _mark_of("I will"))
    assert not is_superseded(_ended_agent_run(stored_result, stored_result), "turn1", _mark_of("I will"))
    assert is_superseded(_ended_agent_run(stored_result, stored_result), "turn2", _mark_of("I will"))


@pytest.mark.parametrize(
    ("path", "expected"), [("turn1", True), ("sub/turn1", False), ("answer", False), ("it/answer", False)]
)
async def test_superseded_text_is_looked_up_only_for_paths_of_turns(path: str, expected: bool) -> None:
    read_runs: list[str] = []

    def open_reader(run_id: str) -> Any:
        async def read() -> RunView:
            read_runs.append(run_id)
            return _ended_agent_run(_answer("Four."))

        return SimpleNamespace(read=read)

    server = _FakeServer()
    server.open_reader = open_reader
    mark = replace(_mark_of("Fi"), call_id=path)
    assert await server.token_streams().was_superseded("run-1", mark) is expected
    assert not await server.token_streams().was_superseded("run-1", replace(mark, length=0))
    assert read_runs == (["run-1"] if "turn" in path else [])


def _parts_of(delivered_text: DeliveredText, *texts: PartialText) -> list[TextPart]:
    return [part for text in texts if (part := delivered_text.next_part(text)) is not None]


def _partial_texts(attempt: int, *texts: str) -> list[PartialText]:
    return [PartialText("answer", attempt, text) for text in texts]


OSLO_HAS_PART, OSLO_HAS_TEXTS = TextPart("answer", 1, 0, "Oslo has"), _partial_texts(1, "Oslo has")
FOUR_PART = TextPart("", 0, 0, "Four.", starts_new_text=True)


@pytest.mark.parametrize(
    ("polled_texts", "expected", "answers_and_rests"),
    [
        (
            _partial_texts(1, "", "Os", "Os", "Oslo ", "Oslo has"),
            [TextPart("answer", 1, 0, "Os"), TextPart("answer", 1, 2, "lo "), TextPart("answer", 1, 5, "has")],
            [("Oslo has rain.", TextPart("", 0, 8, " rain.")), ("Oslo has rain.", None)],
        ),
        (OSLO_HAS_TEXTS, [OSLO_HAS_PART], []),
        # The next attempt repeats the text and continues it.
        (
            [*OSLO_HAS_TEXTS, *_partial_texts(2, "", "Oslo", "Oslo has rain")],
            [OSLO_HAS_PART, TextPart("answer", 2, 8, " rain")],
            [],
        ),
        # The next attempt writes a different text.
        (
            [*OSLO_HAS_TEXTS, *_partial_texts(2, "Os", "Osaka")],
            [OSLO_HAS_PART, TextPart("answer", 2, 0, "Osaka", starts_new_text=True)],
            [("Osaka has", TextPart("", 0, 5, " has"))],
        ),
        # The final answer is a different text.
        (_partial_texts(1, "Let me see"), [TextPart("answer", 1, 0, "Let me see")], [("Four.", FOUR_PART)]),
    ],
)
def test_polled_texts_are_converted_to_parts(
    polled_texts: list[PartialText], expected: list[TextPart], answers_and_rests: list[tuple[str, TextPart | None]]
) -> None:
    delivered_text = DeliveredText()
    assert _parts_of(delivered_text, *polled_texts) == expected
    assert [delivered_text.rest_of(answer) for answer, _ in answers_and_rests] == [
        rest for _, rest in answers_and_rests
    ]


TEXT_LENGTHS = st.lists(st.integers(0, 60))


def _polled_texts(answer: str, first_lengths: list[int], second_lengths: list[int]) -> list[PartialText]:
    first_texts = _partial_texts(1, *(f"{answer}!"[:length] for length in sorted(first_lengths)))
    return [*first_texts, *_partial_texts(2, *(answer[:length] for length in sorted(second_lengths)))]


def _read_to_end(text_before: str, delivered_text: DeliveredText, polled_texts: list[PartialText], answer: str) -> str:
    """Return the text of a reader at the end: `text_before`, all parts and the remaining text."""
    text = text_before
    parts = _parts_of(delivered_text, *polled_texts)
    rest = delivered_text.rest_of(answer)
    for part in [*parts, *([rest] if rest is not None else [])]:
        text = "" if part.starts_new_text else text
        assert (part.offset, part.text != "") == (len(text), True)
        text += part.text
    return text


@given(st.text(min_size=1), TEXT_LENGTHS, TEXT_LENGTHS)
def test_text_of_a_reader_of_two_attempts_equals_the_answer(
    answer: str, first_lengths: list[int], second_lengths: list[int]
) -> None:
    assert _read_to_end("", DeliveredText(), _polled_texts(answer, first_lengths, second_lengths), answer) == answer


@given(st.text(min_size=1), TEXT_LENGTHS, TEXT_LENGTHS, st.integers(0, 100), st.booleans())
def test_text_of_a_resumed_reader_equals_the_answer(
    answer: str, first_lengths: list[int], second_lengths: list[int], resume_index: int, mark_has_call_id: bool
) -> None:
    polled_texts = _polled_texts(answer, first_lengths, second_lengths)
    delivered_text, text = DeliveredText(), ""
    for polled_text in polled_texts[:resume_index]:
        part = delivered_text.next_part(polled_text)
        text = text if part is None else part.text if part.starts_new_text else text + part.text
    # A mark without a call ID has only 11 bits of the checksum.
    mark = delivered_text.mark
    if not mark_has_call_id:
        mark = replace(mark, call_id="", checksum=mark.checksum & 0x7FF, bits=11)
    resumed_text = DeliveredText(mark)
    # The resumed reader receives the last poll again, and then the later polls.
    text = _read_to_end(text, resumed_text, polled_texts[max(resume_index - 1, 0) :], answer)
    assert (text, resumed_text.mark.length, resumed_text.mark.checksum) == (answer, len(answer), text_checksum(answer))


def test_reader_resumed_from_a_mark_continues_matching_text_and_restarts_different_text() -> None:
    delivered_text = DeliveredText(TextMark("answer#2", 7, text_checksum("Oslo ha")))
    # A retried call (`answer#3`) continues the text. Another call (`turn2`) restarts the text.
    assert delivered_text.next_part(PartialText("answer#3", 1, "Oslo")) is None
    assert delivered_text.next_part(PartialText("answer#3", 1, "Oslo has")) == TextPart("answer#3", 1, 7, "s")
    turn_text = DeliveredText(TextMark("turn1", 7, text_checksum("Oslo ha")))
    assert turn_text.next_part(PartialText("turn2", 1, "Oslo")) == TextPart("turn2", 1, 0, "Oslo", starts_new_text=True)
    rest = DeliveredText(TextMark("answer", 4, text_checksum("Oslo"))).rest_of("Osaka")
    assert rest == TextPart("", 0, 0, "Osaka", starts_new_text=True)


def test_partial_text_with_a_gap_or_without_new_text_is_rejected() -> None:
    partial_texts = PartialTexts()
    assert not partial_texts.apply("answer", HeartbeatText(1, 9, "9"))
    assert not partial_texts.apply("answer", HeartbeatText(1, 0, ""))
    assert partial_texts.apply("answer", HeartbeatText(1, 0, "Oslo"))
    for heartbeat_text in (HeartbeatText(1, 9, "9"), HeartbeatText(1, 0, "Os")):
        assert not partial_texts.apply("answer", heartbeat_text)
        assert partial_texts.newest_text == PartialText("answer", 1, "Oslo")


@pytest.mark.parametrize(
    "encoded",
    [
        *(None, "text", {}, {"text": "a", "from": 0}, {"text": 1, "from": 0, "attempt": 1}),
        *({"text": "a", "from": offset, "attempt": 1} for offset in (-1, True)),
    ],
)
def test_invalid_heartbeat_details_have_no_text(encoded: object) -> None:
    assert heartbeat_text_from_json(encoded) is None
