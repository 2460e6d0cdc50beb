"""Products and roles as lookup targets: the codes of the catalogue with their common names.

Terms are not rows of the store, because the schemas of the verbs already list the accepted codes. The steps of `lookup`
search terms in the same way as parties. This module must not import the database.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from dagwright_onboarding.catalogue import PRODUCTS, ROLES
from dagwright_onboarding.models import NameUse
from dagwright_onboarding.name_search import KnownName
from dagwright_onboarding.names import core_words, name_key, words_of
from dagwright_onboarding.search_index import OWN_NAME, core_of

_PRODUCT_ALIASES: Mapping[str, Sequence[str]] = {
    "CUSTODY": ("Safekeeping", "Custodian services", "Global custody"),
    "FUND_ACCOUNTING": ("NAV calculation", "Fund accounts", "FA"),
    "FUND_ADMINISTRATION": ("Fund admin", "Administration"),
    "TRANSFER_AGENCY": ("Transfer agent services", "Registrar and transfer agency", "TA"),
    "DEPOSITARY": ("Depositary bank services", "Depository"),
    "MIDDLE_OFFICE": ("Middle office outsourcing",),
    "COLLATERAL_MANAGEMENT": ("Collateral",),
    "SECURITIES_LENDING": ("Stock lending", "Sec lending"),
    "FOREIGN_EXCHANGE": ("FX", "Forex", "Currency"),
    "CASH_MANAGEMENT": ("Cash", "Treasury"),
    "PRIME_BROKERAGE": ("Prime broker services", "Prime broking"),
    "EXECUTION": ("Trade execution", "Brokerage execution"),
    "PERFORMANCE_MEASUREMENT": ("Performance reporting", "Performance attribution"),
    "RISK_REPORTING": ("Risk reports",),
    "REGULATORY_REPORTING": ("Reg reporting", "Regulatory reports"),
    "TAX_SERVICES": ("Tax", "Tax reporting"),
    "CORPORATE_SECRETARIAL": ("Company secretarial", "Cosec"),
    "DOMICILIATION": ("Registered office", "Domicile"),
}
_ROLE_ALIASES: Mapping[str, Sequence[str]] = {
    "MONEY_LAUNDERING_REPORTING_OFFICER": ("MLRO", "AML officer", "Anti-money laundering officer"),
    "COMPLIANCE_OFFICER": ("Head of compliance", "CCO", "Chief compliance officer"),
    "CHIEF_EXECUTIVE_OFFICER": ("CEO", "Managing director"),
    "CHIEF_FINANCIAL_OFFICER": ("CFO", "Finance director"),
    "CHAIRPERSON": ("Chair", "Chairman", "Chairwoman"),
    "PORTFOLIO_MANAGER": ("PM", "Fund manager"),
    "RISK_MANAGER": ("Risk officer", "CRO"),
    "AUTHORISED_SIGNATORY": ("Authorized signatory", "Signatory", "Signing authority"),
    "CONTACT_PERSON": ("Contact",),
    "ULTIMATE_BENEFICIAL_OWNER": ("UBO",),
    "DIRECTOR": ("Board member", "Member of the board"),
    "BENEFICIAL_OWNER": ("BO",),
    "SHAREHOLDER": ("Stockholder",),
    "GENERAL_PARTNER": ("GP",),
    "LIMITED_PARTNER": ("LP",),
    "MANAGEMENT_COMPANY": ("ManCo", "AIFM"),
    "INVESTMENT_MANAGER": ("IM", "Asset manager"),
    "INVESTMENT_ADVISER": ("Investment advisor",),
    "ADMINISTRATOR": ("Fund administrator", "Admin"),
    "CUSTODIAN": ("Custodian bank",),
    "DEPOSITARY": ("Depositary bank", "Depository"),
    "TRANSFER_AGENT": ("TA", "Registrar"),
    "AUDITOR": ("Statutory auditor", "Réviseur"),
    "LEGAL_COUNSEL": ("Lawyer", "Legal adviser", "Legal advisor"),
    "TAX_ADVISER": ("Tax advisor",),
}
_DUPLICATE_CODES = frozenset({"AUTHORIZED_SIGNATORY"})
"""Codes that are other spellings of a listed code. With both codes, every lookup of the role would be ambiguous."""


class TermNames:
    """The names of all terms of a kind, for the steps of `lookup`.

    Args:
        kind: `product` or `role`.
    """

    def __init__(self, kind: str) -> None:
        self._names = _names(kind)

    def exact_terms(self, key: str, code: str) -> list[KnownName]:
        """Return the terms with this code or this name key."""
        return [name for name in self._names if name.id == code or " ".join(name.words) == " ".join(words_of(key))]

    def exact_names(self, words: Sequence[str], core: Sequence[str]) -> list[KnownName]:
        """Return the names that consist of exactly these words, or of the core words, in any order."""
        return [name for name in self._names if core_of(name.core) in (core_of(words), core_of(core))]

    def names_with_words(self, words: Sequence[str]) -> list[KnownName]:
        """Return the names that have all these words."""
        return [name for name in self._names if set(words) <= set(name.words)]

    def names_with_prefixes(self, prefixes: Sequence[str]) -> list[KnownName]:
        """Return all names; the step filters them by prefix."""
        return list(self._names) if prefixes else []

    def similar_names(self, words: Sequence[str], *, min_similarity: float) -> Iterator[list[KnownName]]:
        """Yield all names; the step filters them by similarity."""
        if words and min_similarity <= 100:
            yield list(self._names)


def term_of(code: str) -> KnownName | None:
    """Return the product, or otherwise the role, with a code; `None` if the code is unknown."""
    names = (*_names("product"), *_names("role"))
    return next((name for name in names if name.id == code and name.use == OWN_NAME), None)


@cache
def _names(kind: str) -> tuple[KnownName, ...]:
    codes, aliases = (PRODUCTS, _PRODUCT_ALIASES) if kind == "product" else (ROLES, _ROLE_ALIASES)
    names = []
    for code in codes:
        if code in _DUPLICATE_CODES:
            continue
        own_name = code.replace("_", " ").capitalize()
        for name, use in ((own_name, OWN_NAME), *((alias, NameUse.ALIAS) for alias in aliases.get(code, ()))):
            key = name_key(name)
            names.append(KnownName(code, own_name, kind, "", use, words=words_of(key), core=core_words(key)))
    return tuple(names)
