"""Takes secrets out of what a call says and returns."""

import json
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

SHORTEST_HIDDEN_IN_RESULTS = 6
"""Characters: a shorter secret is left in results, or the secret `1` would change every number in a text."""

HIDDEN = "***"


class Redaction:
    """Hides the secrets of one call in what it says."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = [secret for secret in secrets if secret]

    def text(self, text: str) -> str:
        """Returns `text` without any secret, also where it is quoted for a URL or for JSON."""
        return _hidden(text, self._secrets)

    def value(self, value: Any) -> Any:
        """Returns a JSON value without the secrets that are long enough to be told from ordinary text."""
        long = [secret for secret in self._secrets if len(secret) >= SHORTEST_HIDDEN_IN_RESULTS]
        return _hidden_in(value, long) if long else value


def _hidden(text: str, secrets: Sequence[str]) -> str:
    forms = {form for secret in secrets for form in _forms(secret)}
    for form in sorted(forms, key=lambda form: (-len(form), form)):
        text = text.replace(form, HIDDEN)
    return text


def _forms(secret: str) -> tuple[str, ...]:
    escaped, readable = json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]
    return (
        secret,
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        escaped,
        readable,
        repr(secret)[1:-1],
    )


def _hidden_in(value: Any, secrets: Sequence[str]) -> Any:
    if isinstance(value, str):
        return _hidden(value, secrets)
    if isinstance(value, list):
        return [_hidden_in(part, secrets) for part in value]
    if isinstance(value, dict):
        return {_hidden(key, secrets): _hidden_in(part, secrets) for key, part in value.items()}
    return value
