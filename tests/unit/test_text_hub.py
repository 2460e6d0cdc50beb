"""Who looks at the text of an answer, how often, and what of a description is one; without a server."""

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
from dagwright.core.scheduler.scheduler import Scheduler
from dagwright.history import token_streams
from dagwright.history.run_reader import RunNotFound, RunView
from dagwright.history.run_subscriptions import RunFeeds
from dagwright.history.text_stream import Mark, Piece, ToldText, Writing, Written, check_of
from dagwright.history.token_streams import (
    LOOKS_PER_S,
    NEXT_PAUSE_S,
    PIECES_PER_S,
    AnswerTexts,
    answering_node,
    is_given_up,
    text_call,
)
from dagwright.planning.model_calls.calls import Message, ModelAnswer, answer_to_json
from dagwright.planning.model_calls.partial_text import WINDOW_CHARACTERS, TextSoFar, end_of, text_from_json
from tests.support.eventually import eventually
from tests.unit.cli.views import START, node, start_ready, view_of


def _call(activity_id: str, *details: Any, kind: str = "call_model", at_s: int = 1) -> PendingActivityInfo:
    call = PendingActivityInfo(activity_id=activity_id)
    call.activity_type.name = kind
    call.scheduled_time.seconds = at_s
    payloads = [Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(detail).encode()) for detail in details]
    call.heartbeat_details.payloads.extend(payloads)
    return call


def _telling(activity_id: str, text: str, *, attempt: int = 1, at_s: int = 1) -> PendingActivityInfo:
    return _call(activity_id, None, None, None, end_of(text, attempt=attempt).to_json(), at_s=at_s)


class _Server:
    """A run whose description a test writes, and whose feed ends when the test says so.

    Args:
        is_known: whether there is such a run.
    """

    def __init__(self, *, is_known: bool = True) -> None:
        self.described = DescribeWorkflowExecutionResponse()
        self.looks = 0
        self.ended = asyncio.Event()
        self.readers = 0
        self._is_known = is_known
        self._is_lost = False
        self.view: RunView | None = None

    def lose(self) -> None:
        """Has the feed give up."""
        self._is_lost = True
        self.ended.set()

    def get_workflow_handle(self, _: str) -> "_Server":
        return self

    async def describe(self) -> Any:
        self.looks += 1
        return SimpleNamespace(raw_description=self.described)

    async def subscribe(self, workflow_id: str) -> AsyncGenerator[Any, None]:
        if not self._is_known:
            raise RunNotFound(f"there is no run {workflow_id!r}")
        self.readers += 1
        yield SimpleNamespace(view=self.view, changed=("answer",))
        await self.ended.wait()
        if self._is_lost:
            raise RPCError("gone", RPCStatusCode.UNAVAILABLE, b"")

    def tell(self, text: str, *, attempt: int = 1) -> None:
        self.described = DescribeWorkflowExecutionResponse(
            pending_activities=[_telling("answer", text, attempt=attempt)]
        )

    def texts(self) -> AnswerTexts:
        return AnswerTexts(cast("Client", self), cast("RunFeeds", self))


async def _read(texts: AnswerTexts, pieces: list[Piece]) -> None:
    async for piece in texts.pieces("run", ToldText()):
        pieces.append(piece)


async def test_all_who_read_an_answer_share_one_look() -> None:
    server = _Server()
    texts = server.texts()
    told: list[list[Piece]] = [[] for _ in range(50)]
    reading = [asyncio.create_task(_read(texts, pieces)) for pieces in told]
    server.tell("Oslo")
    await eventually(lambda: all(told))
    server.tell("Oslo has")
    await eventually(lambda: all(len(pieces) == 2 for pieces in told))
    looks = server.looks
    server.ended.set()
    await asyncio.gather(*reading)
    assert told == [[Piece("answer", 1, 0, "Oslo"), Piece("answer", 1, 4, " has")]] * 50
    assert server.readers == 1
    # One look for each moment and not for each reader, however slow the machine.
    assert looks < 50


@pytest.mark.parametrize(
    ("said", "pieces"),
    [("Let me look.", ["Let me", " look."]), ("Let me [[FEEDBACK x: y?]]", ["Let me", " "]), ("{}", ["Let me"])],
)
async def test_last_words_of_a_call_that_has_ended_are_told_from_its_result(said: str, pieces: list[str]) -> None:
    answer = answer_to_json(ModelAnswer(Message(role="assistant", content=said)))
    server = _Server()
    server.view = view_of(node("answer"), step=lambda scheduler: scheduler.complete("answer", answer, at=START))
    server.tell("Let me")
    told: list[Piece] = []
    reading = asyncio.create_task(_read(server.texts(), told))
    await eventually(lambda: len(told) == 1)
    server.described = DescribeWorkflowExecutionResponse()
    looks = server.looks
    await eventually(lambda: server.looks > looks + 1)
    server.ended.set()
    await reading
    assert [piece.text for piece in told] == pieces


async def test_answer_in_a_form_is_told_as_its_text_when_none_of_it_was_told_before() -> None:
    output = {"answer": "Oslo has.", "missing": []}
    answer = answer_to_json(ModelAnswer(Message(role="assistant", content=json.dumps(output)), output=output))
    server = _Server()
    server.view = view_of(node("answer"), step=lambda scheduler: scheduler.complete("answer", answer, at=START))
    server.tell("")
    told: list[Piece] = []
    reading = asyncio.create_task(_read(server.texts(), told))
    await eventually(lambda: server.looks > 1)
    server.described = DescribeWorkflowExecutionResponse()
    await eventually(lambda: bool(told))
    server.ended.set()
    await reading
    assert [piece.text for piece in told] == ["Oslo has."]


async def test_look_goes_with_the_last_reader() -> None:
    server = _Server()
    texts = server.texts()
    server.tell("Oslo")
    before = asyncio.all_tasks()
    async with aclosing(texts.pieces("run", ToldText())) as coming:
        assert (await anext(coming)).text == "Oslo"
    await eventually(lambda: asyncio.all_tasks() == before)
    async with aclosing(texts.pieces("run", ToldText())) as coming:
        assert (await anext(coming)).text == "Oslo"
    assert server.readers == 2


async def test_reader_of_a_run_that_is_not_there_is_told_so() -> None:
    with pytest.raises(RunNotFound):
        await _read(_Server(is_known=False).texts(), [])


async def test_who_comes_after_the_server_was_lost_looks_anew_beside_one_who_has_not_heard_of_it() -> None:
    server = _Server()
    texts = server.texts()
    server.tell("Oslo")
    async with aclosing(texts.pieces("run", ToldText())) as slow:
        await anext(slow)
        server.lose()
        with pytest.raises(RPCError):
            await _read(texts, [])
        server.ended.clear()
        async with aclosing(texts.pieces("run", ToldText())) as again:
            assert (await anext(again)).text == "Oslo"
        with pytest.raises(RPCError):
            await anext(slow)


@pytest.mark.parametrize(("runs", "pause_s"), [(1, NEXT_PAUSE_S), (20, NEXT_PAUSE_S), (200, 1.0)])
def test_runs_that_are_looked_at_share_so_many_looks(runs: int, pause_s: float) -> None:
    texts = _Server().texts()
    held = [texts.pausing(NEXT_PAUSE_S) for _ in range(runs)]
    pauses_s = [each.__enter__() for each in held]
    assert pauses_s[-1] == pytest.approx(pause_s)
    assert runs / pauses_s[-1] <= LOOKS_PER_S + 1e-6
    for each in held:
        each.__exit__(None, None, None)
    with texts.pausing(NEXT_PAUSE_S) as pause:
        assert pause == pytest.approx(NEXT_PAUSE_S)


async def test_many_readers_of_one_run_are_told_more_at_once() -> None:
    server = _Server()
    texts, count = server.texts(), int(PIECES_PER_S * NEXT_PAUSE_S * 2)
    reading = [asyncio.create_task(_read(texts, [])) for _ in range(count)]
    await eventually(lambda: server.looks > 0)
    with texts.pausing(NEXT_PAUSE_S) as pause_s:
        assert pause_s == pytest.approx(2 * NEXT_PAUSE_S)
    server.ended.set()
    await asyncio.gather(*reading)


def test_call_that_tells_its_text_is_found_among_others() -> None:
    others = [
        _call("plan", None, None, {"usage": {}}),
        _call("tool", *[{"text": "x", "from": 0, "attempt": 1}] * 4, kind="echo"),
    ]
    assert text_call(others) is None
    assert text_call([*others, _telling("answer", "Os"), _telling("answer#2", "", at_s=2)]) == (
        "answer#2",
        TextSoFar(1, 0, ""),
    )


def test_details_that_are_no_json_are_no_text() -> None:
    call = _telling("answer", "Os")
    call.heartbeat_details.payloads[3].data = b"{"
    assert text_call([call]) is None


WHOLE = ResultOf("a", "result")


@pytest.mark.parametrize(
    ("holes", "answering"),
    [
        ((((), (WHOLE,)),), "a"),
        ((((), (ResultOf("a", "result", ("answer",)),)),), None),
        ((((), ("It says: ", WHOLE)),), None),
        (((("said",), (WHOLE,)),), None),
        ((((), (ResultOf("a", "status"),)),), None),
        ((), None),
    ],
)
def test_answer_of_a_plan_is_that_of_the_node_whose_result_it_gives_out(holes: Any, answering: str | None) -> None:
    assert answering_node(CompiledPlan(nodes=(), tools={}, output_holes=holes)) == answering


def _told(text: str) -> Mark:
    return Mark("it/turn1", len(text), check_of(text))


def _ended(*results: Any) -> RunView:
    """Returns the run of an agent whose turns have come to something."""
    names = [f"turn{number}" for number in range(1, len(results) + 1)]

    def end(scheduler: Scheduler) -> None:
        for name, result in zip(names, results, strict=True):
            start_ready(scheduler)
            scheduler.complete(name, result, at=START)

    return view_of(*(node(name, *names[:at]) for at, name in enumerate(names)), step=end)


def test_turn_is_given_up_that_has_come_to_other_words_than_were_told_of_it() -> None:
    said = [answer_to_json(ModelAnswer(Message(role="assistant", content=text))) for text in ("Let me see.", "Four.")]
    view = _ended(*said)
    assert not is_given_up(view, "turn1", _told("Let me"))
    assert is_given_up(view, "turn1", _told("I will"))
    # Nothing is known of it yet.
    assert not is_given_up(view_of(node("turn1")), "turn1", _told("I will"))
    # A later call of it is the one that counts.
    assert is_given_up(view, "turn1#2", _told("Let me"))
    assert is_given_up(view, "turn2", _told("Fi"))


def test_turn_whose_words_lie_in_the_store_is_given_up_if_the_answer_is_its_own() -> None:
    stored = StoredValue("v1/ref")
    assert is_given_up(_ended(stored), "turn1", _told("I will"))
    assert not is_given_up(_ended(stored, stored), "turn1", _told("I will"))
    assert is_given_up(_ended(stored, stored), "turn2", _told("I will"))


@pytest.mark.parametrize(
    ("path", "is_other"), [("turn1", True), ("sub/turn1", False), ("answer", False), ("it/answer", False)]
)
async def test_what_was_told_is_looked_for_in_the_run_that_wrote_it(
    monkeypatch: pytest.MonkeyPatch, path: str, is_other: bool
) -> None:
    read: list[str] = []

    class Feed:
        def __init__(self, _: Any, run: str) -> None:
            self._run = run

        async def read(self) -> RunView:
            read.append(self._run)
            said = answer_to_json(ModelAnswer(Message(role="assistant", content="Four.")))
            return _ended(said)

    monkeypatch.setattr(token_streams, "RunFeed", Feed)
    mark = replace(_told("Fi"), node=path)
    assert await _Server().texts().was_given_up("run-1", mark) is is_other
    assert not await _Server().texts().was_given_up("run-1", replace(mark, length=0))
    assert read == (["run-1"] if "turn" in path else [])


def _pieces(told: ToldText, *seen: Written) -> list[Piece]:
    return [piece for written in seen if (piece := told.piece_of(written)) is not None]


def test_each_look_tells_what_is_new() -> None:
    told = ToldText()
    found = _pieces(told, *(Written("answer", 1, text) for text in ("", "Os", "Os", "Oslo ", "Oslo has")))
    assert found == [Piece("answer", 1, 0, "Os"), Piece("answer", 1, 2, "lo "), Piece("answer", 1, 5, "has")]
    assert told.rest_of("Oslo has rain.") == Piece("", 0, 8, " rain.")
    assert told.rest_of("Oslo has rain.") is None


def test_late_reader_is_told_all_there_is_at_once() -> None:
    assert _pieces(ToldText(), Written("answer", 1, "Oslo has")) == [Piece("answer", 1, 0, "Oslo has")]


def test_next_attempt_that_writes_the_same_goes_on_where_the_first_one_died() -> None:
    seen = (Written("answer", 1, "Oslo has"), *(Written("answer", 2, text) for text in ("", "Oslo", "Oslo has rain")))
    assert _pieces(ToldText(), *seen) == [Piece("answer", 1, 0, "Oslo has"), Piece("answer", 2, 8, " rain")]


def test_next_attempt_that_writes_something_else_begins_again() -> None:
    seen = (Written("answer", 1, "Oslo has"), Written("answer", 2, "Os"), Written("answer", 2, "Osaka"))
    told = ToldText()
    assert _pieces(told, *seen) == [
        Piece("answer", 1, 0, "Oslo has"),
        Piece("answer", 2, 0, "Osaka", begins_again=True),
    ]
    assert told.rest_of("Osaka has") == Piece("", 0, 5, " has")


def test_answer_that_is_another_one_in_the_end_begins_again() -> None:
    told = ToldText()
    _pieces(told, Written("answer", 1, "Let me see"))
    assert told.rest_of("Four.") == Piece("", 0, 0, "Four.", begins_again=True)


@given(st.text(min_size=1), st.lists(st.integers(0, 60)), st.lists(st.integers(0, 60)))
def test_whatever_is_seen_of_two_attempts_the_reader_ends_with_the_answer(
    answer: str, first: list[int], second: list[int]
) -> None:
    told, text = ToldText(), ""
    looks = [Written("answer", 1, f"{answer}!"[:end]) for end in sorted(first)]
    looks += [Written("answer", 2, answer[:end]) for end in sorted(second)]
    found = _pieces(told, *looks)
    rest = told.rest_of(answer)
    for piece in [*found, *([rest] if rest is not None else [])]:
        assert piece.text
        text = text if not piece.begins_again else ""
        assert piece.offset == len(text)
        text += piece.text
    assert text == answer


@given(
    st.text(min_size=1), st.lists(st.integers(0, 60)), st.lists(st.integers(0, 60)), st.integers(0, 100), st.booleans()
)
def test_reader_that_goes_on_elsewhere_is_told_what_it_would_have_been_told(
    answer: str, first: list[int], second: list[int], at: int, is_known: bool
) -> None:
    looks = [Written("answer", 1, f"{answer}!"[:end]) for end in sorted(first)]
    looks += [Written("answer", 2, answer[:end]) for end in sorted(second)]
    told, text = ToldText(), ""
    for written in looks[:at]:
        piece = told.piece_of(written)
        text = text if piece is None else piece.text if piece.begins_again else text + piece.text
    mark = told.mark if is_known else replace(told.mark, node="", check=told.mark.check & 0x7FF, bits=11)
    other = ToldText(mark)
    # It sees what was told, or what came later.
    found = _pieces(other, *looks[max(at - 1, 0) :])
    rest = other.rest_of(answer)
    for piece in [*found, *([rest] if rest is not None else [])]:
        text = "" if piece.begins_again else text
        assert piece.offset == len(text)
        text += piece.text
    assert (text, other.mark.length, other.mark.check) == (answer, len(answer), check_of(answer))


def test_what_was_told_elsewhere_is_waited_for_and_known_again() -> None:
    told = ToldText(Mark("answer#2", 7, check_of("Oslo ha")))
    # Another attempt of the same call may come to the same; another call does not.
    assert told.piece_of(Written("answer#3", 1, "Oslo")) is None
    assert told.piece_of(Written("answer#3", 1, "Oslo has")) == Piece("answer#3", 1, 7, "s")
    other = ToldText(Mark("turn1", 7, check_of("Oslo ha")))
    assert other.piece_of(Written("turn2", 1, "Oslo")) == Piece("turn2", 1, 0, "Oslo", begins_again=True)
    assert ToldText(Mark("answer", 4, check_of("Oslo"))).rest_of("Osaka") == Piece("", 0, 0, "Osaka", begins_again=True)


def test_windows_of_a_long_text_are_put_together() -> None:
    writing, text = Writing(), "".join(f"{number} " for number in range(20_000))
    for end in range(0, len(text), WINDOW_CHARACTERS // 2):
        writing.take("answer", end_of(text[:end], attempt=1))
    writing.take("answer", end_of(text, attempt=1))
    assert writing.newest == Written("answer", 1, text)


@pytest.mark.parametrize("before", [[], [TextSoFar(1, 0, "0123")]])
def test_text_with_an_unknown_part_is_not_told(before: list[TextSoFar]) -> None:
    writing = Writing()
    for each in before:
        writing.take("answer", each)
    known = writing.newest
    assert not writing.take("answer", TextSoFar(1, 9, "9"))
    assert writing.newest == known


def test_look_that_comes_late_takes_nothing_back() -> None:
    writing = Writing()
    assert writing.take("answer", TextSoFar(1, 0, "Oslo"))
    assert not writing.take("answer", TextSoFar(1, 0, "Os"))
    assert writing.newest == Written("answer", 1, "Oslo")


def test_call_that_has_just_begun_has_no_text_to_tell() -> None:
    writing = Writing()
    assert not writing.take("answer", TextSoFar(2, 0, ""))
    assert writing.take("answer", TextSoFar(2, 0, "O"))


def test_heartbeat_carries_the_end_of_a_long_text() -> None:
    text = "x" * WINDOW_CHARACTERS + "end"
    told = end_of(text, attempt=3)
    assert (told.start, len(told.text), told.text[-3:]) == (3, WINDOW_CHARACTERS, "end")
    assert text_from_json(told.to_json()) == told


@pytest.mark.parametrize(
    "encoded",
    [
        None,
        "text",
        {},
        {"text": "a", "from": 0},
        {"text": 1, "from": 0, "attempt": 1},
        {"text": "a", "from": -1, "attempt": 1},
        {"text": "a", "from": True, "attempt": 1},
    ],
)
def test_details_that_somebody_else_left_are_no_text(encoded: object) -> None:
    assert text_from_json(encoded) is None
