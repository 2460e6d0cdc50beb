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
from dagwright.planning.model_calls.heartbeat_text import HeartbeatText, heartbeat_text_from_json, last_part
from dagwright.planning.model_calls.model_requests import Message, ModelResponse, response_to_json
from dagwright.protocol.conversion import data_converter
from tests.support.eventually import eventually
from tests.unit.interfaces.cli.views import START, node, start_ready, view_of


def _call(activity_id: str, *details: Any, kind: str = "call_model", at_s: int = 1) -> PendingActivityInfo:
    call = PendingActivityInfo(activity_id=activity_id)
    call.activity_type.name = kind
    call.scheduled_time.seconds = at_s
    payloads = [Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(detail).encode()) for detail in details]
    call.heartbeat_details.payloads.extend(payloads)
    return call


def _pending_activity(activity_id: str, text: str, *, attempt: int = 1, at_s: int = 1) -> PendingActivityInfo:
    return _call(activity_id, None, None, None, last_part(text, attempt=attempt).to_json(), at_s=at_s)


class _Server:
    """Fake server with one run. The test sets the description of the run and ends its reader."""

    data_converter = data_converter
    open_reader: Any

    def __init__(self, *, is_known: bool = True) -> None:
        self.described = DescribeWorkflowExecutionResponse()
        self.poll_count = self.readers = 0
        self.ended = asyncio.Event()
        self._is_known, self._is_disconnected = is_known, False
        self.view: RunView | None = None

    def disconnect(self) -> None:
        self._is_disconnected = True
        self.ended.set()

    def get_workflow_handle(self, _: str) -> "_Server":
        return self

    async def describe(self) -> Any:
        self.poll_count += 1
        return SimpleNamespace(raw_description=self.described)

    async def subscribe(self, workflow_id: str) -> AsyncGenerator[Any, None]:
        if not self._is_known:
            raise RunNotFound(f"there is no run {workflow_id!r}")
        self.readers += 1
        yield SimpleNamespace(view=self.view, changed_ids=("answer",))
        await self.ended.wait()
        if self._is_disconnected:
            raise RPCError("gone", RPCStatusCode.UNAVAILABLE, b"")

    def stream(self, text: str) -> None:
        self.described = DescribeWorkflowExecutionResponse(pending_activities=[_pending_activity("answer", text)])

    def texts(self) -> TokenStreams:
        return TokenStreams(cast("Client", self), cast("RunSubscriptions", self))


async def _read(texts: TokenStreams, pieces: list[TextPart]) -> None:
    async for piece in texts.parts("run", DeliveredText()):
        pieces.append(piece)


async def test_readers_of_a_run_share_the_polls() -> None:
    server = _Server()
    texts = server.texts()
    parts: list[list[TextPart]] = [[] for _ in range(50)]
    reading = [asyncio.create_task(_read(texts, pieces)) for pieces in parts]
    server.stream("Oslo")
    await eventually(lambda: all(parts))
    server.stream("Oslo has")
    await eventually(lambda: all(len(pieces) == 2 for pieces in parts))
    polls = server.poll_count
    server.ended.set()
    await asyncio.gather(*reading)
    assert parts == [[TextPart("answer", 1, 0, "Oslo"), TextPart("answer", 1, 4, " has")]] * 50
    assert server.readers == 1
    # Polls are shared: even on a slow machine there are fewer polls than readers.
    assert polls < 50


def _answer(text: str, **more: Any) -> Any:
    return response_to_json(ModelResponse(Message(role="assistant", content=text), **more))


FORM = {"answer": "Oslo has.", "missing": []}


@pytest.mark.parametrize(
    ("answer", "first", "pieces"),
    [
        (_answer("Let me look."), "Let me", ["Let me", " look."]),
        (_answer("Let me [[FEEDBACK x: y?]]"), "Let me", ["Let me", " "]),
        (_answer("{}"), "Let me", ["Let me"]),
        (_answer(json.dumps(FORM), output=FORM), "", ["Oslo has."]),
    ],
)
async def test_remaining_text_of_an_ended_call_is_taken_from_its_result(
    answer: Any, first: str, pieces: list[str]
) -> None:
    server = _Server()
    server.view = view_of(node("answer"), step=lambda scheduler: scheduler.complete("answer", answer, at=START))
    server.stream(first)
    entries: list[TextPart] = []
    reading = asyncio.create_task(_read(server.texts(), entries))
    await eventually(lambda: server.poll_count > 1 and len(entries) == bool(first))
    server.described = DescribeWorkflowExecutionResponse()
    polls = server.poll_count
    await eventually(lambda: server.poll_count > polls + 1)
    server.ended.set()
    await reading
    assert [piece.text for piece in entries] == pieces


async def test_polling_ends_with_the_last_reader() -> None:
    server = _Server()
    texts = server.texts()
    server.stream("Oslo")
    tasks_before = asyncio.all_tasks()
    async with aclosing(texts.parts("run", DeliveredText())) as parts:
        assert (await anext(parts)).text == "Oslo"
    await eventually(lambda: asyncio.all_tasks() == tasks_before)
    async with aclosing(texts.parts("run", DeliveredText())) as parts:
        assert (await anext(parts)).text == "Oslo"
    assert server.readers == 2


async def test_reading_an_unknown_run_is_an_error() -> None:
    with pytest.raises(RunNotFound):
        await _read(_Server(is_known=False).texts(), [])


async def test_new_reader_polls_again_after_a_connection_failure() -> None:
    server = _Server()
    texts = server.texts()
    server.stream("Oslo")
    async with aclosing(texts.parts("run", DeliveredText())) as slow_reader:
        await anext(slow_reader)
        server.disconnect()
        with pytest.raises(RPCError):
            await _read(texts, [])
        server.ended.clear()
        async with aclosing(texts.parts("run", DeliveredText())) as new_reader:
            assert (await anext(new_reader)).text == "Oslo"
        with pytest.raises(RPCError):
            await anext(slow_reader)


@pytest.mark.parametrize(("runs", "pause_s"), [(1, NEXT_PAUSE_S), (20, NEXT_PAUSE_S), (200, 1.0)])
def test_poll_rate_of_all_runs_is_limited(runs: int, pause_s: float) -> None:
    texts = _Server().texts()
    pauses = [texts.poll_pause(NEXT_PAUSE_S) for _ in range(runs)]
    pauses_s = [each.__enter__() for each in pauses]
    assert pauses_s[-1] == pytest.approx(pause_s)
    assert runs / pauses_s[-1] <= MAX_POLLS_PER_S + 1e-6
    for each in pauses:
        each.__exit__(None, None, None)
    with texts.poll_pause(NEXT_PAUSE_S) as pause:
        assert pause == pytest.approx(NEXT_PAUSE_S)


async def test_poll_pause_grows_with_the_number_of_readers() -> None:
    server = _Server()
    texts, count = server.texts(), int(MAX_PARTS_PER_S * NEXT_PAUSE_S * 2)
    reading = [asyncio.create_task(_read(texts, [])) for _ in range(count)]
    await eventually(lambda: server.poll_count > 0)
    with texts.poll_pause(NEXT_PAUSE_S) as pause_s:
        assert pause_s == pytest.approx(2 * NEXT_PAUSE_S)
    server.ended.set()
    await asyncio.gather(*reading)


def test_newest_model_call_with_text_is_found() -> None:
    text = {"text": "x", "from": 0, "attempt": 1}
    other_calls = [_call("plan", None, None, {"usage": {}}), _call("tool", *[text] * 4, kind="echo")]
    assert newest_text_call(other_calls) is None
    newest = ("answer#2", HeartbeatText(1, 0, ""))
    assert (
        newest_text_call([*other_calls, _pending_activity("answer", "Os"), _pending_activity("answer#2", "", at_s=2)])
        == newest
    )
    call = _pending_activity("answer", "Os")
    call.heartbeat_details.payloads[3].data = b"{"
    assert newest_text_call([call]) is None


WHOLE = ResultOf("a", "result")


@pytest.mark.parametrize(
    ("bindings", "expected"),
    [
        ((((), (WHOLE,)),), "a"),
        ((((), (ResultOf("a", "result", ("answer",)),)),), None),
        ((((), ("It says: ", WHOLE)),), None),
        (((("said",), (WHOLE,)),), None),
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

    def end(scheduler: RunScheduler) -> None:
        for name, result in zip(names, results, strict=True):
            start_ready(scheduler)
            scheduler.complete(name, result, at=START)

    return view_of(*(node(name, *names[:at]) for at, name in enumerate(names)), step=end)


def test_text_is_superseded_if_the_result_of_its_turn_is_another_text() -> None:
    view = _ended_agent_run(_answer("Let me see."), _answer("Four."))
    assert not is_superseded(view, "turn1", _mark_of("Let me"))
    assert is_superseded(view, "turn1", _mark_of("I will"))
    # The node has not ended.
    assert not is_superseded(view_of(node("turn1")), "turn1", _mark_of("I will"))
    # Only the text of the last call of a node can be current. Here the last call is not `turn1#2`.
    assert is_superseded(view, "turn1#2", _mark_of("Let me"))
    assert is_superseded(view, "turn2", _mark_of("Fi"))
    # The text of a stored result is unknown. Only the stored result of the last turn supersedes the text.
    stored = StoredValue("v1/ref")
    assert is_superseded(_ended_agent_run(stored), "turn1", _mark_of("I will"))
    assert not is_superseded(_ended_agent_run(stored, stored), "turn1", _mark_of("I will"))
    assert is_superseded(_ended_agent_run(stored, stored), "turn2", _mark_of("I will"))


@pytest.mark.parametrize(
    ("path", "is_superseded"), [("turn1", True), ("sub/turn1", False), ("answer", False), ("it/answer", False)]
)
async def test_superseded_text_is_looked_up_only_for_turns_of_the_run(path: str, is_superseded: bool) -> None:
    read_runs: list[str] = []

    class Feed:
        def __init__(self, run: str) -> None:
            self._run = run

        async def read(self) -> RunView:
            read_runs.append(self._run)
            message = _answer("Four.")
            return _ended_agent_run(message)

    server = _Server()
    server.open_reader = Feed
    mark = replace(_mark_of("Fi"), node=path)
    assert await server.texts().was_superseded("run-1", mark) is is_superseded
    assert not await server.texts().was_superseded("run-1", replace(mark, length=0))
    assert read_runs == (["run-1"] if "turn" in path else [])


def _parts_of(delivered: DeliveredText, *texts: PartialText) -> list[TextPart]:
    return [piece for text in texts if (piece := delivered.next_part(text)) is not None]


def _partial_texts(attempt: int, *texts: str) -> list[PartialText]:
    return [PartialText("answer", attempt, text) for text in texts]


OSLO, OSLO_HAS = TextPart("answer", 1, 0, "Oslo has"), _partial_texts(1, "Oslo has")
FOUR = TextPart("", 0, 0, "Four.", restarts=True)


@pytest.mark.parametrize(
    ("polled_texts", "expected", "rests"),
    [
        (
            _partial_texts(1, "", "Os", "Os", "Oslo ", "Oslo has"),
            [TextPart("answer", 1, 0, "Os"), TextPart("answer", 1, 2, "lo "), TextPart("answer", 1, 5, "has")],
            [("Oslo has rain.", TextPart("", 0, 8, " rain.")), ("Oslo has rain.", None)],
        ),
        (OSLO_HAS, [OSLO], []),
        # The next attempt repeats the text and continues it.
        ([*OSLO_HAS, *_partial_texts(2, "", "Oslo", "Oslo has rain")], [OSLO, TextPart("answer", 2, 8, " rain")], []),
        # The next attempt writes a different text.
        (
            [*OSLO_HAS, *_partial_texts(2, "Os", "Osaka")],
            [OSLO, TextPart("answer", 2, 0, "Osaka", restarts=True)],
            [("Osaka has", TextPart("", 0, 5, " has"))],
        ),
        # The final answer is a different text.
        (_partial_texts(1, "Let me see"), [TextPart("answer", 1, 0, "Let me see")], [("Four.", FOUR)]),
    ],
)
def test_polled_texts_are_converted_to_pieces(
    polled_texts: list[PartialText], expected: list[TextPart], rests: list[tuple[str, TextPart | None]]
) -> None:
    result = DeliveredText()
    assert _parts_of(result, *polled_texts) == expected
    assert [result.rest_of(answer) for answer, _ in rests] == [rest for _, rest in rests]


TEXT_ENDS = st.lists(st.integers(0, 60))


def _polled_texts(answer: str, first: list[int], second: list[int]) -> list[PartialText]:
    seen = _partial_texts(1, *(f"{answer}!"[:end] for end in sorted(first)))
    return [*seen, *_partial_texts(2, *(answer[:end] for end in sorted(second)))]


def _read_to_end(text: str, delivered: DeliveredText, polled_texts: list[PartialText], answer: str) -> str:
    """Return the text that a reader receives: all pieces and the remaining text."""
    actual = _parts_of(delivered, *polled_texts)
    rest = delivered.rest_of(answer)
    for piece in [*actual, *([rest] if rest is not None else [])]:
        text = "" if piece.restarts else text
        assert (piece.offset, piece.text != "") == (len(text), True)
        text += piece.text
    return text


@given(st.text(min_size=1), TEXT_ENDS, TEXT_ENDS)
def test_text_of_a_reader_of_two_attempts_equals_the_answer(answer: str, first: list[int], second: list[int]) -> None:
    assert _read_to_end("", DeliveredText(), _polled_texts(answer, first, second), answer) == answer


@given(st.text(min_size=1), TEXT_ENDS, TEXT_ENDS, st.integers(0, 100), st.booleans())
def test_text_of_a_resumed_reader_equals_the_answer(
    answer: str, first: list[int], second: list[int], resumed_at: int, is_known: bool
) -> None:
    polls = _polled_texts(answer, first, second)
    result, text = DeliveredText(), ""
    for polled in polls[:resumed_at]:
        piece = result.next_part(polled)
        text = text if piece is None else piece.text if piece.restarts else text + piece.text
    mark = result.mark if is_known else replace(result.mark, node="", check=result.mark.check & 0x7FF, bits=11)
    resumed = DeliveredText(mark)
    # The resumed reader receives the last poll again, and the later polls.
    text = _read_to_end(text, resumed, polls[max(resumed_at - 1, 0) :], answer)
    assert (text, resumed.mark.length, resumed.mark.check) == (answer, len(answer), text_checksum(answer))


def test_reader_resumed_from_a_mark_continues_matching_text_and_restarts_different_text() -> None:
    result = DeliveredText(TextMark("answer#2", 7, text_checksum("Oslo ha")))
    # A retried call (`answer#3`) continues the text. Another call (`turn2`) restarts the text.
    assert result.next_part(PartialText("answer#3", 1, "Oslo")) is None
    assert result.next_part(PartialText("answer#3", 1, "Oslo has")) == TextPart("answer#3", 1, 7, "s")
    turn_text = DeliveredText(TextMark("turn1", 7, text_checksum("Oslo ha")))
    assert turn_text.next_part(PartialText("turn2", 1, "Oslo")) == TextPart("turn2", 1, 0, "Oslo", restarts=True)
    assert DeliveredText(TextMark("answer", 4, text_checksum("Oslo"))).rest_of("Osaka") == TextPart(
        "", 0, 0, "Osaka", restarts=True
    )


def test_partial_text_with_a_gap_or_without_new_text_is_rejected() -> None:
    texts = PartialTexts()
    assert not texts.apply("answer", HeartbeatText(1, 9, "9"))
    assert not texts.apply("answer", HeartbeatText(1, 0, ""))
    assert texts.apply("answer", HeartbeatText(1, 0, "Oslo"))
    for rejected in (HeartbeatText(1, 9, "9"), HeartbeatText(1, 0, "Os")):
        assert not texts.apply("answer", rejected)
        assert texts.newest_text == PartialText("answer", 1, "Oslo")


@pytest.mark.parametrize(
    "encoded",
    [
        *(None, "text", {}, {"text": "a", "from": 0}),
        {"text": 1, "from": 0, "attempt": 1},
        {"text": "a", "from": -1, "attempt": 1},
        {"text": "a", "from": True, "attempt": 1},
    ],
)
def test_foreign_heartbeat_details_are_not_text(encoded: object) -> None:
    assert heartbeat_text_from_json(encoded) is None
