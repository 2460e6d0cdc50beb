"""What a reader of an answer is told while it is written: each word once, whatever is seen of it, and when."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagwright.answer_pieces import Mark, Piece, ToldText, Writing, Written, check_of
from dagwright.contracts.text_so_far import WINDOW_CHARACTERS, TextSoFar, end_of, text_from_json


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
