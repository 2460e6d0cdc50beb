"""Formats of texts in the arguments of the verbs: names, dates of birth and jurisdictions."""

import re
import unicodedata
from datetime import date
from typing import Final

NAME_LIMIT: Final = 300
"""Characters of a name; the registers we know of stay under 250."""
TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Signs that turn the direction of what follows, so that a name is shown as another one."""
_NOT_IN_NAMES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories: control characters, line ends among them, halves of characters, and signs that cannot be seen."""

_JOINERS: Final = "\u200c\u200d"
"""Signs without a shape that several scripts cannot be written without."""
_BLANK_LETTERS: Final = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters to Unicode, and nothing to the eye."""

_FIRST_BIRTH, _LAST_BIRTH = "1800-01-01", "2099-12-31"
"""Plans are checked where there is no clock too; the verbs know which day is still to come."""


def check_date_of_birth(text: str) -> None:
    """Refuses a text that is no day such as `1970-12-31`, or one on which nobody of today is born.

    Raises:
        ValueError: it is none.
    """
    try:
        is_day = date.fromisoformat(text).isoformat() == text
    except ValueError:
        is_day = False
    if not is_day:
        raise ValueError(f"{text[:200]!r} is no date such as 1970-12-31")
    if not _FIRST_BIRTH <= text <= _LAST_BIRTH:
        raise ValueError(f"{text!r} is no date of birth from {_FIRST_BIRTH} to {_LAST_BIRTH}")


def check_name(text: str) -> None:
    """Refuses a text that nobody can be called by: one without letters, too long, not of one line, or partly unseen.

    Raises:
        ValueError: it is one.
    """
    no_name = f"{text[:200]!r} is no name"
    if not any(map(str.isalnum, text)):
        raise ValueError(f"{no_name}: it holds no letter or digit")
    length = len(unicodedata.normalize("NFC", text))
    if length > NAME_LIMIT:
        raise ValueError(f"{no_name}: it has {length:,} characters, at most {NAME_LIMIT} are allowed")
    for position, character in enumerate(text):
        is_unseen = unicodedata.category(character) in _NOT_IN_NAMES and character not in _JOINERS
        if is_unseen or character in _BLANK_LETTERS:
            raise ValueError(f"{no_name}: it holds the character U+{ord(character):04X} at position {position}")
