"""Text formats in the arguments of the verbs: names, dates of birth and jurisdictions."""

import re
import unicodedata
from datetime import date
from typing import Final

MAX_NAME_CHARACTERS: Final = 300
"""Maximum number of characters of a name; names in the known registers have less than 250 characters."""
BIDI_CONTROLS = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Bidirectional control characters, which can make a name look like another name."""
_FORBIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories: control characters, line separators, surrogates and invisible characters."""

_JOINERS: Final = "\u200c\u200d"
"""Zero-width characters that several scripts require."""
_BLANK_LETTERS: Final = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters in Unicode that are displayed as blank."""

_FIRST_BIRTH_DATE, _LAST_BIRTH_DATE = "1800-01-01", "2099-12-31"
"""Constants rather than the current date, because plans are also validated without a clock; the verbs reject dates in
the future."""


def check_date_of_birth(text: str) -> None:
    """Check a date of birth such as `1970-12-31`.

    Raises:
        ValueError: the text is not a date, or the year is not plausible.
    """
    try:
        is_date = date.fromisoformat(text).isoformat() == text
    except ValueError:
        is_date = False
    if not is_date:
        raise ValueError(f"{text[:200]!r} is not a date such as 1970-12-31")
    if not _FIRST_BIRTH_DATE <= text <= _LAST_BIRTH_DATE:
        raise ValueError(f"{text!r} is not a date of birth from {_FIRST_BIRTH_DATE} to {_LAST_BIRTH_DATE}")


def check_name(text: str) -> None:
    """Check the name of a party.

    Raises:
        ValueError: the text has no letter or digit, is too long, or has line ends or invisible characters.
    """
    problem = f"{text[:200]!r} is not a name"
    if not any(map(str.isalnum, text)):
        raise ValueError(f"{problem}: it has no letter or digit")
    length = len(unicodedata.normalize("NFC", text))
    if length > MAX_NAME_CHARACTERS:
        raise ValueError(f"{problem}: it has {length:,} characters, at most {MAX_NAME_CHARACTERS} are allowed")
    for position, character in enumerate(text):
        is_invisible = unicodedata.category(character) in _FORBIDDEN_CATEGORIES and character not in _JOINERS
        if is_invisible or character in _BLANK_LETTERS:
            raise ValueError(f"{problem}: it has the character U+{ord(character):04X} at position {position}")


_JURISDICTION = re.compile(r"([A-Z]{2})(-[A-Z0-9]{1,3})?")
_CODES = """
AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW
BY BZ CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI
FJ FK FM FO FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN
IO IQ IR IS IT JE JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME
MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF
PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV
SX SY SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS XK
YE YT ZA ZM ZW
"""
"""ISO 3166-1 alpha-2, and `XK`, which the LEI register uses for Kosovo."""
_COUNTRIES = frozenset(_CODES.split())
_DIVISIONS: Final = {
    "AE": "AJ AZ DU FU RK SH UQ",
    "AU": "ACT NSW NT QLD SA TAS VIC WA",
    "CA": "AB BC MB NB NL NS NT NU ON PE QC SK YT",
    "US": """
    AK AL AR AS AZ CA CO CT DC DE FL GA GU HI IA ID IL IN KS KY LA MA MD ME MI MN MO MP MS MT NC ND NE NH NJ NM NV NY
    OH OK OR PA PR RI SC SD TN TX UM UT VA VI VT WA WI WV WY
    """,
}
"""ISO 3166-2 codes for the countries whose subdivisions register companies; subdivisions of other countries are checked
by form only."""
_DIVISIONS_BY_COUNTRY = {country: frozenset(codes.split()) for country, codes in _DIVISIONS.items()}


def parse_jurisdiction(text: str) -> str:
    """Return an ISO 3166 code in capitals (`LU`, `US-DE`). Raises ValueError for any other text."""
    code = text.strip().upper()
    match = _JURISDICTION.fullmatch(code)
    if match is None:
        raise ValueError(f"jurisdiction {text!r:.80} is not an ISO 3166 code; expected a code such as LU or US-DE")
    if match[1] not in _COUNTRIES:
        advice = "; the United Kingdom is GB" if match[1] == "UK" else ""
        raise ValueError(f"jurisdiction {text!r:.80} is not an ISO 3166 code: there is no country {match[1]}{advice}")
    divisions = _DIVISIONS_BY_COUNTRY.get(match[1])
    if match[2] is not None and divisions is not None and match[2][1:] not in divisions:
        message = f"jurisdiction {text!r:.80} is not an ISO 3166 code: {match[1]} has no subdivision {match[2][1:]}"
        raise ValueError(message)
    return code
