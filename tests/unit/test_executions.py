"""Offsets as texts: what a browser or a program gives back to go on from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagwright.executions import Offset


@given(st.integers(1, 10**6), st.integers(0, 10**6))
def test_offset_is_read_as_it_was_written(run: int, event: int) -> None:
    assert Offset.parse(str(Offset(run, event))) == Offset(run, event)


@pytest.mark.parametrize("text", ["", "1", "0-1", "-1-2", "1-", "1-x", "1.5-2", "1-2-3", "٣-x", "9" * 40 + "-1"])
def test_text_that_is_no_offset_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no offset; one looks like 1-145"):
        Offset.parse(text)


def test_offsets_are_in_the_order_of_the_run() -> None:
    offsets = [Offset(2, 1), Offset(1, 30), Offset(1, 4)]
    assert sorted(offsets) == [Offset(1, 4), Offset(1, 30), Offset(2, 1)]
