"""Text formats in the arguments of the verbs: names, dates of birth and jurisdictions."""

import re
import unicodedata
from datetime import date
from typing import Final

NAME_LIMIT: Final = 300
"""Characters of a name; the registers that we know stay under 250."""
BIDI_CONTROLS = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Bidirectional control characters, which can make a name look like another one."""
_NOT_IN_NAMES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories: control characters, line separators, surrogates and invisible characters."""

_JOINERS: Final = "\u200c\u200d"
"""Zero-width characters that several scripts require."""
_BLANK_LETTERS: Final = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters in Unicode that are displayed as blank."""

_FIRST_BIRTH, _LAST_BIRTH = "1800-01-01", "2099-12-31"
"""Constant, because plans are also validated without a clock; the verbs refuse dates in the future."""


def check_date_of_birth(text: str) -> None:
    """Check a date of birth such as `1970-12-31`.

    Raises:
        ValueError: the text is not a date or not a plausible year.
    """
    try:
        is_day = date.fromisoformat(text).isoformat() == text
    except ValueError:
        is_day = False
    if not is_day:
        raise ValueError(f"{text[:200]!r} is not a date such as 1970-12-31")
    if not _FIRST_BIRTH <= text <= _LAST_BIRTH:
        raise ValueError(f"{text!r} is not a date of birth from {_FIRST_BIRTH} to {_LAST_BIRTH}")


def check_name(text: str) -> None:
    """Check the name of a party.

    Raises:
        ValueError: the text has no letter or digit, is too long, or has line ends or invisible characters.
    """
    no_name = f"{text[:200]!r} is not a name"
    if not any(map(str.isalnum, text)):
        raise ValueError(f"{no_name}: it has no letter or digit")
    length = len(unicodedata.normalize("NFC", text))
    if length > NAME_LIMIT:
        raise ValueError(f"{no_name}: it has {length:,} characters, at most {NAME_LIMIT} are allowed")
    for position, character in enumerate(text):
        is_invisible = unicodedata.category(character) in _NOT_IN_NAMES and character not in _JOINERS
        if is_invisible or character in _BLANK_LETTERS:
            raise ValueError(f"{no_name}: it has the character U+{ord(character):04X} at position {position}")
