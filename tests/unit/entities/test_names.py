"""Names as they are stored."""

import pytest

from dagwright.entities.names import clean_name, name_key


@pytest.mark.parametrize("text", ["Ann\nLee", " Ann \t Lee ", "Ann \u202eLee\u202c", "\u2066Ann Lee\u2069"])
def test_name_is_stored_on_one_line_and_as_it_is_read(text: str) -> None:
    assert clean_name(text) == "Ann Lee"
    assert name_key(text) == name_key("Ann Lee")
