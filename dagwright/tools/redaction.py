"""Takes secrets out of what a call says and returns."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, urlencode, urlsplit, urlunsplit

SHORTEST_HIDDEN_IN_RESULTS = 6
"""Characters: a shorter secret is left in results, or the secret `1` would change every number in a text."""

HIDDEN = "***"
_SECRET_NAMES = re.compile(r"key|token|secret|passw|pwd|auth|sig|cred|session", re.IGNORECASE)
"""Names of the parameters of an address that may be secret; better one too many than one too few."""


class Redaction:
    """Hides the secrets of one call in what it says."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = [secret for secret in secrets if secret]
        self._long = [secret for secret in self._secrets if len(secret) >= SHORTEST_HIDDEN_IN_RESULTS]

    def text(self, text: str) -> str:
        """Returns `text` without any secret, also where it is quoted for a URL or for JSON."""
        return _hidden(text, self._secrets)

    def value(self, value: Any) -> Any:
        """Returns a JSON value without the secrets that are long enough to be told from ordinary text."""
        return _hidden_in(value, self._long) if self._long else value

    def place(self, place: str) -> str:
        """Returns the path of a file or an address as one line, without any secret.

        Of an address user and fragment are left out, and values of parameters hidden whose names sound like secrets.
        """
        line = self.text("".join(each if each.isprintable() else "�" for each in place))
        if "://" not in line:
            return line
        try:
            parts = urlsplit(line)
            query = [
                (self.text(name), HIDDEN if _SECRET_NAMES.search(name) else self.text(value))
                for name, value in parse_qsl(parts.query, keep_blank_values=True)
            ]
        except ValueError:
            return f"{line.partition('://')[0]}://{HIDDEN}"
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path, urlencode(query, safe="*/:,"), ""))


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
