"""Ids and sequence numbers of the events of an answer."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dagwright.history.executions import Cursor
from dagwright.history.run_subscriptions import SubscriptionCursor
from dagwright.history.text_stream import TextMark, text_checksum
from dagwright.interfaces.http.stream_cursor import RESPONSE_OPENING_EVENTS, StreamCursor, StreamKind

names = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S"), include_characters=" "), min_size=1, max_size=40
)
standings, outcomes = st.sampled_from(["", "9f3a01bc4d0e77a2"]), st.sampled_from(["", "9f3a01bc"])
marks = st.builds(
    lambda node, text: TextMark(node, len(text), text_checksum(text)),
    st.one_of(st.just(""), names),
    st.text(max_size=30),
)
cursors = st.builds(
    StreamCursor,
    st.sampled_from(StreamKind),
    names,
    st.integers(1, RESPONSE_OPENING_EVENTS),
    st.builds(SubscriptionCursor, st.builds(Cursor, st.integers(1, 99), st.integers(0, 10**6)), st.booleans()),
    standings,
    st.integers(30, 10**8),
    marks,
    st.integers(0, 999),
    outcomes,
)


@given(cursors)
def test_event_id_has_the_complete_cursor_in_the_size_of_a_header(cursor: StreamCursor) -> None:
    text = str(cursor)
    assert StreamCursor.parse(text, cursor.kind) == cursor
    assert text.isascii()
    assert {" ", "\n"}.isdisjoint(text)
    by_number = replace(cursor, mark=replace(cursor.mark, check=cursor.mark.check & 0x7FF, bits=11))
    assert StreamCursor.parse(str(by_number), cursor.kind) == by_number


@given(st.lists(st.text(min_size=1, max_size=9), max_size=6), st.booleans(), st.integers(0, 9))
def test_numbers_of_a_response_grow_and_are_its_cursor(pieces: list[str], has_requests: bool, ends: int) -> None:
    cursor, result = StreamCursor(StreamKind.RESPONSE, "run-1"), list[StreamCursor]()
    for opening in range(1, RESPONSE_OPENING_EVENTS + 1):
        result.append(cursor := replace(cursor, opening_count=opening))
    text = ""
    for piece in pieces:
        text += piece
        result.append(
            cursor := replace(
                cursor, total_characters=len(text), mark=TextMark("answer", len(text), text_checksum(text))
            )
        )
    if has_requests:
        result.append(cursor := replace(cursor, total_characters=cursor.total_characters + 6, closing_count=1))
    result += [cursor := replace(cursor, closing_count=end) for end in range(2, 2 + ends)]
    numbers = [each.sequence_number for each in result]
    assert numbers == sorted(set(numbers))
    assert max(numbers) < 2**31
    for each in result:
        parsed = StreamCursor.from_sequence_number(each.sequence_number, "run-1")
        assert (parsed.sequence_number, parsed.opening_count, parsed.total_characters, parsed.closing_count) == (
            each.sequence_number,
            each.opening_count,
            each.total_characters,
            each.closing_count,
        )
        assert each.closing_count or parsed.mark.is_prefix_of(text)
