"""Redact secrets in the messages and results of a call.

A secret may return in the form in which it was sent, or as the service quotes it. The quoted characters differ between
parts of a URL, encoders and services, so each character is found in each of its forms: percent-encoded (also twice),
with the escapes of JSON, Python and HTML, and with whitespace collapsed. Base64 is found at any offset of the secret in
the encoded text, such as after a user name and a colon.
"""

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

MIN_LENGTH_INSIDE_WORDS = 6
"""Minimum number of characters of a secret that is redacted inside words of results.

A shorter secret is redacted only as a separate word.
"""

_MAX_LEADING_RUN = 32
"""Maximum number of whitespace characters or backslashes that are redacted at the start of a secret. Three levels of
quoting turn one backslash into eight."""

HIDDEN = "***"
_SECRET_PARAMETER_NAMES = re.compile(r"key|token|secret|passw|pwd|auth|sig|cred|session", re.IGNORECASE)
"""Names of URL parameters whose values may be secret. Redacting too many values is better than too few."""


class Redaction:
    """Redacts the secrets of one call."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = sorted({secret for secret in secrets if secret}, key=lambda secret: (-len(secret), secret))
        self._secret_forms = [_SecretForms(secret) for secret in self._secrets]
        self._long_secrets = [forms for forms in self._secret_forms if forms.length >= MIN_LENGTH_INSIDE_WORDS]
        short_pattern = "|".join(
            forms.quoted_forms_pattern() for forms in self._secret_forms if forms.length < MIN_LENGTH_INSIDE_WORDS
        )
        self._short_secrets_pattern = re.compile(rf"(?<!\w)(?:{short_pattern})(?!\w)") if short_pattern else None

    def redact_text(self, text: str) -> str:
        """Redact all secrets in `text`, including forms that are quoted for a URL or JSON."""
        return _redact_text(text, self._secret_forms)

    def redact_value(self, value: Any) -> Any:
        """Redact the secrets in a JSON value: long secrets anywhere, short secrets only as words or numbers.

        This is not a security boundary: if a tool changes a secret, for example its case, the result is not recognized.
        """
        return self._redact(value) if self._secrets else value

    def _redact(self, value: Any) -> Any:
        if isinstance(value, str):
            text = _redact_text(value, self._long_secrets)
            return self._short_secrets_pattern.sub(HIDDEN, text) if self._short_secrets_pattern is not None else text
        if isinstance(value, list):
            return [self._redact(part) for part in value]
        if isinstance(value, dict):
            return {self._redact(key): self._redact(part) for key, part in value.items()}
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return HIDDEN if is_number and json.dumps(value) in self._secrets else value

    def redact_location(self, location: str) -> str:
        """Return a file path or URL as one line, without secrets.

        In a URL, the user and fragment are removed, and the values of parameters with secret-like names are redacted.
        """
        line = self.redact_text("".join(character if character.isprintable() else "�" for character in location))
        if "://" not in line:
            return line
        try:
            parts = urlsplit(line)
            query = [
                (self.redact_text(name), HIDDEN if _SECRET_PARAMETER_NAMES.search(name) else self.redact_text(value))
                for name, value in parse_qsl(parts.query, keep_blank_values=True)
            ]
        except ValueError:
            return f"{line.partition('://')[0]}://{HIDDEN}"
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path, urlencode(query, safe="*/:,"), ""))


class _SecretForms:
    """The forms of one secret."""

    def __init__(self, secret: str) -> None:
        # Services and parsers strip the whitespace around a value.
        self._text = secret.strip() or secret
        self.length = len(self._text)
        self._longest_plain_part = max(re.findall(r"[0-9A-Za-z]+", secret), key=len, default="")
        """The longest part of the secret that is the same in every form. A text without this part is not searched."""
        self._base64 = _base64_forms(secret)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        # Compiled on demand: compiling takes a third of a second for a private key, and the pattern is seldom needed.
        return re.compile(self.quoted_forms_pattern())

    def quoted_forms_pattern(self) -> str:
        """Return a pattern of the forms in which encoders write the secret, character by character."""
        parts = re.findall(r"[\s+]+|\\+|.", self._text, re.DOTALL)
        # Without a limit for the leading run of whitespace or backslashes, the search would take quadratic time.
        first_part = _pattern_of_part(parts[0], max_length=max(_MAX_LEADING_RUN, 8 * len(parts[0])))
        return first_part + "".join(map(_pattern_of_part, parts[1:]))

    def hide_in(self, text: str) -> str:
        """Return a text without the secret."""
        if self._longest_plain_part in text:
            text = self._pattern.sub(HIDDEN, text)
        for form in self._base64:
            text = text.replace(form, HIDDEN)
        return text


def _redact_text(text: str, secrets: Iterable[_SecretForms]) -> str:
    for secret in secrets:
        text = secret.hide_in(text)
    return text


def _pattern_of_part(part: str, *, max_length: int | None = None) -> str:
    """Return a pattern of the forms of a character, or of a run of whitespace or backslashes.

    Args:
        max_length: maximum length of a run; `None` for no limit.
    """
    run = "+" if max_length is None else f"{{1,{max_length}}}"
    if part[0] == "+" or part[0].isspace():
        # In form encoding, a plus is a space, and runs of spaces and line breaks are often collapsed to one space.
        space = "|".join(sorted({form for character in {*part, " "} for form in _escapes(character)}))
        return rf"(?:\s|\+|\\{{1,3}}[nrtvf]|{space}){run}"
    if part[0] == "\\":
        # The backslashes and the escapes after them are one alternative, so the pattern matches in only one way and
        # takes linear time.
        other_escapes = "|".join(form for form in _escapes("\\") if form[0] != "\\")
        return rf"(?:\\(?:u005[cC]|x5[cC]|U0000005[cC])?|{other_escapes}){run}"
    if re.fullmatch(r"[\w.~-]", part, re.ASCII):
        return re.escape(part)
    backslash_form = rf"\\{{0,3}}{re.escape(part)}"
    return f"(?:{'|'.join([backslash_form, *_escapes(part)])})"


def _escapes(character: str) -> Iterator[str]:
    """Yield patterns of the escaped forms of a character."""
    yield "".join(f"%(?:25)*{_any_case(f'{byte:02x}')}" for byte in character.encode())
    units = character.encode("utf-16-be").hex()
    # JSON may escape any character, and some encoders escape those with a meaning in HTML.
    yield "".join(rf"\\{{1,3}}u{_any_case(units[index : index + 4])}" for index in range(0, len(units), 4))
    code = ord(character)
    yield rf"\\{{1,3}}(?:x{_any_case(f'{code:02x}')}|U{_any_case(f'{code:08x}')})"
    yield f"&#(?:0*{code}|[xX]0*{_any_case(f'{code:x}')});"
    if (html_form := html.escape(character)) != character:
        yield re.escape(html_form)


def _any_case(digits: str) -> str:
    return re.sub("[a-f]", lambda digit: f"[{digit[0]}{digit[0].upper()}]", digits)


def _base64_forms(secret: str) -> list[str]:
    """Return the Base64 of a secret at its three possible offsets, without characters that also encode other bytes."""
    content, forms = secret.encode(), set()
    for offset in range(3):
        text = base64.b64encode(b"\0" * offset + content).decode()
        is_last_shared = (offset + len(content)) % 3 != 0
        first_exclusive_character = (0, 2, 3)[offset]
        forms.add(text[first_exclusive_character : len(text.rstrip("=")) - is_last_shared])
    long_forms = {form for form in forms if len(form) >= MIN_LENGTH_INSIDE_WORDS}
    return sorted(
        long_forms | {form.replace("+", "-").replace("/", "_") for form in long_forms},
        key=lambda form: (-len(form), form),
    )
