"""Jurisdictions: ISO 3166 codes of countries, and of subdivisions that register companies."""

import re
from typing import Final

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
"""ISO 3166-2 codes for the countries whose subdivisions register companies; others are checked by form only."""
_DIVISIONS_OF = {country: frozenset(codes.split()) for country, codes in _DIVISIONS.items()}


def parse_jurisdiction(text: str) -> str:
    """Return an ISO 3166 code in capitals (`LU`, `US-DE`). Raises ValueError for any other text."""
    code = text.strip().upper()
    match = _JURISDICTION.fullmatch(code)
    if match is None:
        raise ValueError(f"jurisdiction {text!r:.80} is not an ISO 3166 code; expected a code such as LU or US-DE")
    if match[1] not in _COUNTRIES:
        advice = "; the United Kingdom is GB" if match[1] == "UK" else ""
        raise ValueError(f"jurisdiction {text!r:.80} is not an ISO 3166 code: there is no country {match[1]}{advice}")
    divisions = _DIVISIONS_OF.get(match[1])
    if match[2] is not None and divisions is not None and match[2][1:] not in divisions:
        message = f"jurisdiction {text!r:.80} is not an ISO 3166 code: {match[1]} has no subdivision {match[2][1:]}"
        raise ValueError(message)
    return code
