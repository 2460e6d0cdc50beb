"""No form in which a secret travels to a service, or comes back from it, is shown."""

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
from tests.support.example_counts import examples

PRINTABLE = st.characters(max_codepoint=0x1FFFF, exclude_categories=("Cs", "Cc", "Cn", "Co"))
ASCII = st.sampled_from(string.printable[:95])
SECRETS = st.text(ASCII | PRINTABLE, min_size=MIN_LENGTH_INSIDE_WORDS, max_size=40).filter(
    lambda secret: len(secret.strip()) >= MIN_LENGTH_INSIDE_WORDS
)


def sent_forms(secret: str) -> dict[str, str]:
    """Return the forms of a secret in a request, by location: whole texts in which the secret must not be found."""
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
@settings(max_examples=examples(120), deadline=None)
@example(secret="p{a}ss|w^rd`", before="", after="")
@example(secret='a"b<c>d e', before="x", after="y")
@example(secret="50%25 of % é", before="", after="")
@example(secret="\\\\server\\n\\u0041", before="\\", after="\\")
@example(secret="a  b&amp;c'd", before="", after="")
def test_no_form_of_a_secret_is_left_in_a_text(secret: str, before: str, after: str) -> None:
    redaction = Redaction([secret])
    for name, form in sent_forms(secret).items():
        for shown in (redaction.text(f"{before}={form}={after}"), redaction.value([f"{before}={form}={after}"])[0]):
            assert form.strip() not in shown.replace(before, "", 1), (name, form, shown)
            assert "***" in shown, (name, form, shown)


@settings(deadline=None)
@given(secret=SECRETS, user=st.text(ASCII, max_size=5))
def test_a_password_is_hidden_in_the_header_that_holds_it(secret: str, user: str) -> None:
    request = httpx.Request("GET", "http://x.example/", headers={})
    [sent] = httpx.BasicAuth(user, secret).auth_flow(request)
    header = sent.headers["Authorization"]
    shown = Redaction([secret]).value({"Authorization": header})["Authorization"]
    left = shown.removeprefix("Basic ").split("***")
    # The rest is the user, and one or two characters that the secret shares with its neighbours.
    assert len(left) == 2
    assert len(left[0]) <= (len(user.encode()) + 1) * 4 / 3 + 1
    assert len(left[1]) <= 4


@given(secret=SECRETS, status=st.sampled_from([200, 500]))
@example(secret="p{a}ss|w^rd`", status=500)
@example(secret="0000?&", status=200)
@settings(deadline=None)
def test_an_echo_of_a_request_shows_no_secret_as_it_was_sent(secret: str, status: int) -> None:
    sent: list[str] = []

    def echo(request: httpx.Request) -> httpx.Response:
        parts = [request.url.raw_path.decode(), request.headers.get("x-token", ""), request.content.decode()]
        sent.extend(found for part in parts for found in re.findall("qqq(.+?)zzz", part, re.DOTALL))
        return httpx.Response(status, text="\n".join(parts)[: 400 if status == 500 else None])

    marked = f"qqq{secret}zzz"
    headers = {"x-token": marked} if secret.isascii() else {}
    body = json.dumps({"k": marked}, ensure_ascii=False).encode()
    # A question mark starts the query, in which httpx omits empty parameters: "?&" is sent as "?".
    path = "" if set("?#") & set(secret) else marked
    address = httpx.URL(f"http://x.example/{path}").copy_merge_params({"q": marked})
    call = HttpCall("POST", address, headers, body, frozenset(), is_repeatable=False)
    try:
        with tool_context():
            answer = asyncio.run(_send(call, httpx.MockTransport(echo)))
        shown = json.dumps(Redaction([secret]).value(answer), ensure_ascii=False)
    except GiveUp as error:
        shown = Redaction([secret]).text(str(error))
    assert sent
    assert [form for form in sent if form in shown] == []


@settings(deadline=None)
@given(text=st.text(PRINTABLE | ASCII, max_size=200), secret=SECRETS)
def test_a_text_without_a_secret_stays_as_it_is(text: str, secret: str) -> None:
    longest = max(secret.split() or [""], key=len)
    if not any(each.isalnum() and each.isascii() and each not in text for each in longest):
        return
    if not any(len(form) >= MIN_LENGTH_INSIDE_WORDS and form[1:-1] in text for form in sent_forms(secret).values()):
        assert Redaction([secret]).text(text) == text


@pytest.mark.parametrize("part", ["\\", "%", "'", " ", "+ ", " +", "\\ ", "\\'", "%25", "+%20", "\\u005c"])
def test_a_secret_of_equivalent_characters_is_redacted_quickly(part: str) -> None:
    hidden = Redaction(["a" + part * 40 + "x"])
    for text in ("\\", "+", " ", "%25", "%", "\\'", "+%20", "%5c", "\\u005c"):
        shown = "a" + text * 300 + "y x"
        assert hidden.text(shown).endswith("y x")
