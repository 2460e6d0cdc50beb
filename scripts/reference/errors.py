"""The table of exceptions, and the codes that the code of Dagwright uses."""

from collections.abc import Mapping

from dagwright import errors
from scripts.reference.failures import used_failure_codes
from scripts.reference.markdown import code, first_paragraph, table
from scripts.reference.sources import calls_of, texts_of

_CODE_OF: Mapping[str, str] = {"Problem": "code", "ApiError": "code", "CommandRefused": "status"}
"""Class of an error -> its argument with the code."""
_CODE_FIRST = frozenset({"Problem"})
"""Classes whose first argument is the code."""


def exceptions_table() -> str:
    """Return a row for each name of `dagwright.errors`: name, base class and meaning."""
    rows = []
    for name in errors.__all__:
        kind = getattr(errors, name)
        base = kind.__mro__[1].__name__ if issubclass(kind, Exception) else ""
        rows.append((code(name), code(base), first_paragraph(kind.__doc__)))
    return table(("Exception", "Base", "Meaning"), rows)


def used_codes() -> set[str]:
    """Return the codes that the code of Dagwright gives to problems, failures, responses and refused commands."""
    return used_failure_codes() | {found for name in _CODE_OF for found in _codes_of(name)}


def _codes_of(name: str) -> set[str]:
    found: set[str] = set()
    for call in calls_of(name):
        given = [each.value for each in call.keywords if each.arg == _CODE_OF[name]]
        given += call.args[:1] if name in _CODE_FIRST else []
        found.update(text for value in given for text in texts_of(value))
    return found
