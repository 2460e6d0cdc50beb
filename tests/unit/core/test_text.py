"""Shortening of texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagwright.core import text


@given(st.text(), st.integers(12, 40))
def test_long_texts_are_cut_to_the_limit_and_short_texts_are_unchanged(original: str, limit: int) -> None:
    cut_functions = (text.cut_characters, text.cut_for_model)
    assert all(len(cut(original, limit)) <= limit for cut in cut_functions)
    assert len(text.cut_bytes(original, max_bytes=limit).encode()) <= limit
    if len(original.encode(errors="replace")) <= limit:
        assert all(
            cut(original, limit) == original for cut in (*cut_functions, text.cut_middle_for_model, text.cut_with_count)
        )


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (text.cut_characters("abcdef", 4), "abc…"),
        (text.cut_for_model("a" * 20, 10), "aaa […cut]"),
        (text.cut_middle_for_model("a" * 20 + "z" * 20, 6), "aaa […cut] zzz"),
        (text.cut_with_count("abcdef", 4), "abcd\n[… cut here: 2 of 6 characters are omitted]"),
        (text.cut_bytes("short", max_bytes=5), "short"),
        (text.cut_bytes("日本語日本語", max_bytes=10), "日本…"),
        (text.cut_bytes("a\ud800", max_bytes=5), "a?"),
        (text.one_line(" a\n b\t c "), "a b c"),
        (text.join_first(["a", "b", "c"], 3), "a, b, c"),
        (text.join_first(["a", "b", "c"], 1), "a and 2 more"),
        (text.join_first(["a", "b", "c"], 2, separator="; "), "a; b; and 1 more"),
    ],
)
def test_marks_show_where_a_text_or_list_was_cut(actual: str, expected: str) -> None:
    assert actual == expected
