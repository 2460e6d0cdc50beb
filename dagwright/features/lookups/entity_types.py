"""What a lookup may ask for: the closed list of entity types, which plans are checked against before they run."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from dagwright.core.expressions.references import suggestion

KIND_OF: Final[Mapping[str, str | None]] = {
    "entity": None,
    "party": None,
    "person": "person",
    "natural-person": "person",
    "company": "company",
    "limited-company": "company",
    "legal-entity": "company",
    "fund": "fund",
    "cbu": "fund",
    "product": "product",
    "role": "role",
}
"""Entity type -> the kind that it means; `None` is any kind of parties."""

_EITHER: Final = " or "

TERM_KINDS: Final = ("product", "role")
"""Kinds that are no parties but words of the catalogue: what is found of them is a code, such as `FUND_ACCOUNTING`."""


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
"""ISO 3166-1 alpha-2, and `XK`, which the register of LEIs has for Kosovo."""
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
"""ISO 3166-2 of the countries whose divisions register companies; of the others only the form is known."""
_DIVISIONS_OF = {country: frozenset(codes.split()) for country, codes in _DIVISIONS.items()}


def jurisdiction_of(text: str) -> str:
    """Returns an ISO 3166 code in capitals (`LU`, `US-DE`). Raises ValueError for any other text."""
    code = text.strip().upper()
    found = _JURISDICTION.fullmatch(code)
    if found is None:
        raise ValueError(f"jurisdiction {text!r:.80} is no ISO 3166 code; expected two letters such as LU, or US-DE")
    if found[1] not in _COUNTRIES:
        meant = "; the United Kingdom is GB" if found[1] == "UK" else ""
        raise ValueError(f"jurisdiction {text!r:.80} is no ISO 3166 code: there is no country {found[1]}{meant}")
    known = _DIVISIONS_OF.get(found[1])
    if found[2] is not None and known is not None and found[2][1:] not in known:
        raise ValueError(f"jurisdiction {text!r:.80} is no ISO 3166 code: {found[1]} has no division {found[2][1:]}")
    return code


class UnknownEntityType(ValueError):
    """Unknown type of entity; `hint` names the nearest known one, if one is near, and `message` is without it."""

    def __init__(self, entity_type: str) -> None:
        self.hint = suggestion(slug_of(entity_type), KIND_OF)
        unknown, known = f"Unknown entity type {entity_type!r:.80}", f"Known types: {', '.join(KIND_OF)}"
        self.message = f"{unknown}. {known}"
        super().__init__(f"{unknown}; {self.hint} {known}" if self.hint else self.message)


def kind_of(entity_type: str) -> str | None:
    """Returns the kind that an entity type means in any spelling (`Limited Company`), `None` for any kind of parties.

    Raises:
        UnknownEntityType: it means none.
    """
    slug = slug_of(entity_type)
    if slug not in KIND_OF:
        raise UnknownEntityType(entity_type)
    return KIND_OF[slug]


def kinds_of(entity_type: str) -> tuple[str, ...] | None:
    """Returns the kinds that an entity type means, or several of them (`company or fund`); `None` for any of parties.

    Raises:
        UnknownEntityType: one of them means none.
    """
    kinds = [kind_of(each) for each in entity_type.split(_EITHER)]
    return None if None in kinds else tuple(dict.fromkeys(kind for kind in kinds if kind is not None))


def either(kinds: Sequence[str]) -> str:
    """Returns kinds as the entity type that means them all: `company or fund`."""
    return _EITHER.join(kinds)


def slug_of(entity_type: str) -> str:
    """Returns the one spelling that stands for all of an entity type."""
    return "-".join(entity_type.lower().replace("_", " ").replace("-", " ").split())
