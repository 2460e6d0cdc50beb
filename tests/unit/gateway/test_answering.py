"""What a client is told of an answer while it is written: it cannot take back what it has."""

import pytest

from dagwright.history.text_stream import Written
from dagwright.interfaces.http.answering import BEGINS_AGAIN, NEXT_TURN, AnswerTold
from dagwright.interfaces.http.following import Outcome


def _told(*seen: tuple[str, int, str], end: str, asked: int = 0) -> str:
    """Returns all that a client is told.

    Args:
        seen: node, attempt and text of each look.
        end: the answer, or the words of what is asked.
        asked: how many questions end the answer.
    """
    told, words = AnswerTold(), ""
    for node, attempt, text in seen:
        piece = told.told.piece_of(Written(node, attempt, text))
        words += told.words_of(piece) if piece is not None else ""
    return words + told.rest_of(Outcome(end, [{"id": "q"}] * asked, {}, {}))


@pytest.mark.parametrize(
    ("seen", "end", "words"),
    [
        ([], "Four.", "Four."),
        ([], "", ""),
        ([("answer", 1, "Fo")], "Four.", "Four."),
        ([("answer", 1, "Fo"), ("answer", 2, "Fo")], "Four.", "Four."),
        ([("answer", 1, "Five"), ("answer", 2, "Four")], "Four.", f"Five{BEGINS_AGAIN}Four."),
        ([("answer", 1, "Some"), ("answer#2", 1, "Four")], "Four.", f"Some{BEGINS_AGAIN}Four."),
        ([("answer", 1, "Five")], "Four.", f"Five{BEGINS_AGAIN}Four."),
        ([("it/turn1", 1, "Let me add."), ("it/turn2", 1, "Fo")], "Four.", f"Let me add.{NEXT_TURN}Four."),
        ([("turn1", 1, "Let me add.")], "Four.", f"Let me add.{NEXT_TURN}Four."),
        ([("turn1", 1, "Five"), ("turn1#2", 1, "Four")], "Four.", f"Five{BEGINS_AGAIN}Four."),
    ],
)
def test_client_is_told_each_word_once_and_where_the_answer_begins_again(
    seen: list[tuple[str, int, str]], end: str, words: str
) -> None:
    assert _told(*seen, end=end) == words


def test_question_follows_what_was_said_before_it() -> None:
    assert _told(end="Which?", asked=1) == "Which?"
    assert _told(("turn1", 1, "I found two."), end="Which?", asked=1) == f"I found two.{NEXT_TURN}Which?"
