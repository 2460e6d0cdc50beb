"""Redaction hides a secret in every encoding in which a request sends it or a response returns it."""

import asyncio
import base64
import html
import json
import re
import string
from urllib.parse import quote, quote_plus, urlencode

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dagwright.tools import GiveUp
from dagwright.tools.builtin.http import HttpCall, _send
from dagwright.tools.redaction import MIN_LENGTH_INSIDE_WORDS, Redaction
from dagwright.tools.testing import tool_context
from tests.support.example_counts import example_count

PRINTABLE = st.characters(max_codepoint=0x1FFFF, exclude_categories=("Cs", "Cc", "Cn", "Co"))
ASCII = st.sampled_from(string.printable[:95])
SECRETS = st.text(ASCII | PRINTABLE, min_size=MIN_LENGTH_INSIDE_WORDS, max_size=40).filter(
    lambda secret: len(secret.strip()) >= MIN_LENGTH_INSIDE_WORDS
)


def encoded_forms(secret: str) -> dict[str, str]:
    """Return name of an encoding -> the encoded secret, for each encoding that a request or a response may use."""
    forms = {
        "plain": secret,
        "quote": quote(secret),
        "quote all": quote(secret, safe=""),
        "quote plus": quote_plus(secret),
        "quoted twice": quote(quote(secret), safe=""),
        "lower hex": quote(secret, safe="").replace("%", "%25").lower() if secret.islower() else quote(secret),
        "decoded form": secret.replace("+", " "),
        "form": urlencode({"k": secret})[2:],
        "json": json.dumps(secret)[1:-1],
        "readable json": json.dumps(secret, ensure_ascii=False)[1:-1],
        "json in json": json.dumps(json.dumps(secret))[3:-3],
        "json with slashes": json.dumps(secret)[1:-1].replace("/", "\\/"),
        "repr": repr(secret)[1:-1],
        "ascii": ascii(secret)[1:-1],
        "html": html.escape(secret),
        "collapsed": " ".join(secret.split()),
        "base64": base64.b64encode(secret.encode()).decode(),
        "base64 for urls": base64.urlsafe_b64encode(secret.encode()).decode(),
    }
    return forms | httpx_forms(secret)


def httpx_forms(secret: str) -> dict[str, str]:
    forms = {"params": str(httpx.QueryParams({"k": secret}))[2:]}
    if "#" not in secret:
        forms["query"] = httpx.URL(f"http://x.example/?k={secret}").query.decode()[2:]
        if "?" not in secret and not set(secret.split("/")) & {".", ".."}:
            forms["path"] = httpx.URL(f"http://x.example/k{secret}").raw_path.decode()[2:]
    return forms


@given(secret=SECRETS, before=st.text(ASCII, max_size=10), after=st.text(ASCII, max_size=10))
@settings(max_examples=example_count(120), deadline=None)
@example(secret="p{a}ss|w^rd`", before="", after="")
@example(secret='a"b<c>d e', before="x", after="y")
@example(secret="50%25 of % é", before="", after="")
@example(secret="\\\\server\\n\\u0041", before="\\", after="\\")
@example(secret="a  b&amp;c'd", before="", after="")
def test_no_encoding_of_a_secret_remains_in_a_text(secret: str, before: str, after: str) -> None:
    redaction = Redaction([secret])
    for name, form in encoded_forms(secret).items():
        text = f"{before}={form}={after}"
        for redacted_text in (redaction.redact_text(text), redaction.redact_value([text])[0]):
            assert form.strip() not in redacted_text.replace(before, "", 1), (name, form, redacted_text)
            assert "***" in redacted_text, (name, form, redacted_text)


@settings(deadline=None)
@given(secret=SECRETS, user=st.text(ASCII, max_size=5))
def test_password_is_redacted_in_a_basic_authorization_header(secret: str, user: str) -> None:
    request = httpx.Request("GET", "http://x.example/", headers={})
    [authorized_request] = httpx.BasicAuth(user, secret).auth_flow(request)
    header = authorized_request.headers["Authorization"]
    redacted_text = Redaction([secret]).redact_value({"Authorization": header})["Authorization"]
    parts = redacted_text.removeprefix("Basic ").split("***")
    # Apart from the encoded user name, only characters remain that also encode bits outside the secret.
    assert len(parts) == 2
    assert len(parts[0]) <= (len(user.encode()) + 1) * 4 / 3 + 1
    assert len(parts[1]) <= 4


@given(secret=SECRETS, status=st.sampled_from([200, 500]))
@example(secret="p{a}ss|w^rd`", status=500)
@example(secret="0000?&", status=200)
@settings(deadline=None)
def test_echoed_request_shows_no_secret_in_the_sent_encoding(secret: str, status: int) -> None:
    sent_forms_of_secret: list[str] = []

    def echo(request: httpx.Request) -> httpx.Response:
        parts = [request.url.raw_path.decode(), request.headers.get("x-token", ""), request.content.decode()]
        sent_forms_of_secret.extend(form for part in parts for form in re.findall("qqq(.+?)zzz", part, re.DOTALL))
        return httpx.Response(status, text="\n".join(parts)[: 400 if status == 500 else None])

    marked_secret = f"qqq{secret}zzz"
    headers = {"x-token": marked_secret} if secret.isascii() else {}
    body = json.dumps({"k": marked_secret}, ensure_ascii=False).encode()
    # A question mark starts the query, in which httpx omits empty parameters: "?&" is sent as "?".
    path = "" if set("?#") & set(secret) else marked_secret
    url = httpx.URL(f"http://x.example/{path}").copy_merge_params({"q": marked_secret})
    call = HttpCall("POST", url, headers, body, frozenset(), is_repeatable=False)
    try:
        with tool_context():
            response = asyncio.run(_send(call, httpx.MockTransport(echo)))
        redacted_text = json.dumps(Redaction([secret]).redact_value(response), ensure_ascii=False)
    except GiveUp as error:
        redacted_text = Redaction([secret]).redact_text(str(error))
    assert sent_forms_of_secret
    assert [form for form in sent_forms_of_secret if form in redacted_text] == []


@settings(deadline=None)
@given(text=st.text(PRINTABLE | ASCII, max_size=200), secret=SECRETS)
def test_text_without_the_secret_is_unchanged(text: str, secret: str) -> None:
    longest_word = max(secret.split() or [""], key=len)
    if not any(each.isalnum() and each.isascii() and each not in text for each in longest_word):
        return
    if not any(len(form) >= MIN_LENGTH_INSIDE_WORDS and form[1:-1] in text for form in encoded_forms(secret).values()):
        assert Redaction([secret]).redact_text(text) == text


@pytest.mark.parametrize("part", ["\\", "%", "'", " ", "+ ", " +", "\\ ", "\\'", "%25", "+%20", "\\u005c"])
def test_secret_whose_characters_have_many_encodings_does_not_slow_down_redaction(part: str) -> None:
    redaction = Redaction(["a" + part * 40 + "x"])
    for text in ("\\", "+", " ", "%25", "%", "\\'", "+%20", "%5c", "\\u005c"):
        assert redaction.redact_text("a" + text * 300 + "y x").endswith("y x")
