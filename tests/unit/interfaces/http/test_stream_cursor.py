"""Ids and sequence numbers of the events of an answer."""

from dataclasses import replace
from operator import attrgetter

from hypothesis import given
from hypothesis import strategies as st

from dagwright.history.executions import Cursor
from dagwright.history.run_subscriptions import SubscriptionCursor
from dagwright.history.text_stream import TextMark, text_checksum
from dagwright.interfaces.http.stream_cursor import RESPONSE_OPENING_EVENTS, StreamCursor, StreamKind

NAMES = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S"), include_characters=" "), min_size=1, max_size=40
)
RUN_CHECKSUMS, OUTCOME_CHECKSUMS = st.sampled_from(["", "9f3a01bc4d0e77a2"]), st.sampled_from(["", "9f3a01bc"])
MARKS = st.builds(
    lambda node, text: TextMark(node, len(text), text_checksum(text)),
    st.one_of(st.just(""), NAMES),
    st.text(max_size=30),
)
CURSORS = st.builds(
    StreamCursor,
    st.sampled_from(StreamKind),
    NAMES,
    st.integers(1, RESPONSE_OPENING_EVENTS),
    st.builds(SubscriptionCursor, st.builds(Cursor, st.integers(1, 99), st.integers(0, 10**6)), st.booleans()),
    RUN_CHECKSUMS,
    st.integers(30, 10**8),
    MARKS,
    st.integers(0, 999),
    OUTCOME_CHECKSUMS,
)


@given(CURSORS)
def test_event_id_contains_the_complete_cursor_and_fits_in_a_header(cursor: StreamCursor) -> None:
    text = str(cursor)
    assert StreamCursor.parse(text, cursor.kind) == cursor
    assert text.isascii()
    assert {" ", "\n"}.isdisjoint(text)
    short_mark = replace(cursor.mark, checksum=cursor.mark.checksum & 0x7FF, bits=11)
    cursor_with_short_mark = replace(cursor, mark=short_mark)
    assert StreamCursor.parse(str(cursor_with_short_mark), cursor.kind) == cursor_with_short_mark


@given(st.lists(st.text(min_size=1, max_size=9), max_size=6), st.booleans(), st.integers(0, 9))
def test_sequence_numbers_of_a_response_increase_and_contain_its_cursor(
    texts: list[str], has_requests: bool, closing_event_count: int
) -> None:
    cursor, sent_cursors = StreamCursor(StreamKind.RESPONSE, "run-1"), list[StreamCursor]()
    for opening in range(1, RESPONSE_OPENING_EVENTS + 1):
        sent_cursors.append(cursor := replace(cursor, opening_count=opening))
    text = ""
    for part in texts:
        text += part
        mark = TextMark("answer", len(text), text_checksum(text))
        sent_cursors.append(cursor := replace(cursor, total_characters=len(text), mark=mark))
    if has_requests:
        sent_cursors.append(cursor := replace(cursor, total_characters=cursor.total_characters + 6, closing_count=1))
    sent_cursors += [
        cursor := replace(cursor, closing_count=closing_count) for closing_count in range(2, 2 + closing_event_count)
    ]
    numbers = [sent_cursor.sequence_number for sent_cursor in sent_cursors]
    assert numbers == sorted(set(numbers))
    assert max(numbers) < 2**31
    counts_of = attrgetter("sequence_number", "opening_count", "total_characters", "closing_count")
    for sent_cursor in sent_cursors:
        parsed = StreamCursor.from_sequence_number(sent_cursor.sequence_number, "run-1")
        assert counts_of(parsed) == counts_of(sent_cursor)
        assert sent_cursor.closing_count or parsed.mark.is_prefix_of(text)
