"""Packed JSON: what is packed comes back the same, and what is not is refused in one sentence."""

import base64
import zlib
from typing import Any

import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagwright.contracts.packing import UNPACKED_LIMIT_BYTES, pack_json, packed_text, unpack

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)


def _packed(content: bytes) -> dict[str, str]:
    return {"packed": base64.b64encode(content).decode()}


@given(_VALUES)
def test_what_is_packed_comes_back_the_same(value: Any) -> None:
    assert unpack(pack_json(pydantic_core.to_json(value))) == value


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (None, "it is not packed"),
        ({"packed": 1}, "it is not packed"),
        ({"packed": "é"}, "it cannot be unpacked: "),
        (_packed(b"no zlib"), "it cannot be unpacked: "),
        (_packed(zlib.compress(b"no JSON")), "it cannot be unpacked: "),
        (_packed(zlib.compress(b"[NaN]")), "it cannot be unpacked: "),
        (_packed(zlib.compress(b"[1]")[:-4]), "it cannot be unpacked: it is cut, or holds over 16,000,000 bytes"),
    ],
    ids=["nothing", "number", "no_base64", "no_zlib", "no_json", "nan", "cut"],
)
def test_what_is_not_packed_is_refused_in_one_sentence(message: Any, words: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the words are compared
        unpack(message)
    assert str(refused.value).startswith(words)


def test_small_text_that_holds_very_much_is_never_unpacked_whole() -> None:
    bomb = packed_text(b"[" + b" " * UNPACKED_LIMIT_BYTES + b"]")
    assert len(bomb) < 100_000
    with pytest.raises(ValueError, match="holds over 16,000,000 bytes"):
        unpack({"packed": bomb})
