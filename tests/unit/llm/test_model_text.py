"""JSON values in model text, and the visible text of a streamed response."""

import json
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dagwright.dialects.written_text import json_values
from dagwright.llm.completions import without_lone_surrogates
from dagwright.llm.visible_text import MAX_STREAMED_CHARACTERS, VisibleText


def _visible_texts(field: str, *pieces: str) -> list[str]:
    visible_text = VisibleText(field)
    actual = []
    for piece in pieces:
        visible_text.add(piece)
        actual.append(visible_text.text)
    return actual


def _split(text: str, sizes: list[int]) -> list[str]:
    pieces, start = [], 0
    for size in sizes:
        pieces.append(text[start : start + size])
        start += size
    return [*pieces, text[start:]]


@pytest.mark.parametrize(
    ("field", "pieces", "expected"),
    [
        pytest.param("", ["Os", "lo"], ["Os", "Oslo"], id="whole text"),
        pytest.param(
            "answer", ['{"ans', 'wer": "Os', "lo\\n", '", "m', 'g": 1}'], ["", "Os", *["Oslo\n"] * 3], id="field"
        ),
        pytest.param("answer", ["`", "``json\n", '{"answer": "Os', 'lo"}\n```'], ["", "", "Os", "Oslo"], id="fence"),
        pytest.param("answer", ["Os", "lo"], ["Os", "Oslo"], id="text instead of JSON"),
        pytest.param("answer", ['{"answer": "Os', '\nlo"}'], ["Os", "Os"], id="invalid JSON at the end"),
        pytest.param("answer", ['{"answer": "Os', '"} {"answer": 7}'], ["Os", "Os"], id="two values"),
        *(("answer", [invalid], [""]) for invalid in ('{"answer": 7}', '{"answer": ["a"]}', '{"other": "a"}')),
        pytest.param("answer", ['["answer"]'], ['["answer"]'], id="list"),
        pytest.param("", ["a\ud83d", "\ude00b", "\ude00"], ["a", "a😀b", "a😀b\ufffd"], id="surrogate halves"),
        pytest.param("", ["see [", "[FEE", "D]] and [1]"], ["see ", "see ", "see [[FEED]] and [1]"], id="brackets"),
    ],
)
def test_visible_text_is_extracted_while_it_is_streamed(field: str, pieces: list[str], expected: list[str]) -> None:
    assert _visible_texts(field, *pieces) == expected


@pytest.mark.parametrize("marker", ["[[FEEDBACK SELECTION: Which? | a]]", "[[ FEEDBACK\n approval: Send it?]]"])
def test_question_to_a_person_is_not_streamed_as_text(marker: str) -> None:
    assert _visible_texts("", *_split(f"I found two. {marker}", [12, 1, 1, 1, 1, 2, 3]))[-1] == "I found two. "
    assert all("I found two. ".startswith(text) for text in _visible_texts("", *f"I found two. {marker}"))


@given(st.text(), st.lists(st.integers(1, 5)), st.sampled_from(["", "answer"]))
def test_visible_text_only_grows_until_it_equals_the_answer(answer: str, sizes: list[int], field: str) -> None:
    answer = answer.replace("[", "(").strip()
    response_text = answer if not field else json.dumps({"missing": ["a"], "answer": answer, "more": 1})
    actual = _visible_texts(field, *_split(response_text, sizes))
    assert actual[-1] == answer
    assert all(longer.startswith(shorter) for shorter, longer in pairwise(actual))


@given(st.lists(st.characters(), max_size=20), st.lists(st.integers(1, 3)))
@example(["\ud800"], [])
def test_surrogate_pairs_in_pieces_are_repaired_as_in_the_complete_answer(
    characters: list[str], sizes: list[int]
) -> None:
    # A lone high surrogate is added only with the next character, so the text must end with another character.
    text = "".join(characters).replace("[", "(") + "."
    encoded = text.encode("utf-16-le", "surrogatepass")
    halves = "".join(
        chr(int.from_bytes(encoded[offset : offset + 2], "little")) for offset in range(0, len(encoded), 2)
    )
    assert _visible_texts("", *_split(halves, sizes))[-1] == without_lone_surrogates(halves)


def test_visible_text_has_a_maximum_length() -> None:
    actual = _visible_texts("", "x" * MAX_STREAMED_CHARACTERS, "y")
    assert actual[-1] == "x" * MAX_STREAMED_CHARACTERS


@pytest.mark.parametrize("text", ["{" * 200_000, "[" * 200_000, '{"a":' * 100_000])
def test_text_of_many_open_brackets_has_no_json_values(text: str) -> None:
    assert list(json_values(text)) == []
