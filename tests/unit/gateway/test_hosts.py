"""Which names lead to a gateway without keys, and whose pages may call it."""

import pytest
from starlette.datastructures import Headers

from dagwright.interfaces.http.hosts import Hosts, listed

NAMED = Hosts(["gateway", "api.example.com"], ["https://a.example.com"])


def _code(hosts: Hosts, host: str | None, origin: str | None = None) -> str | None:
    told = {name: value for name, value in (("host", host), ("origin", origin)) if value is not None}
    refused = hosts.refusal(Headers(told))
    return None if refused is None else refused[0]


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8484", "127.0.0.1:8484", "[::1]:8484", "10.0.0.7", "gateway:8484", None]
)
def test_own_names_and_addresses_of_numbers_are_taken(host: str | None) -> None:
    assert _code(NAMED, host) is None


@pytest.mark.parametrize(
    "host", ["evil.example.com", "localhost.example.com", "127.0.0.1.example.com", "[::1", "@localhost."]
)
def test_other_names_are_refused(host: str) -> None:
    assert _code(NAMED, host) == "foreign_host"


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:8484", "http://localhost:8484"),
        ("10.0.0.7:8484", "http://10.0.0.7:8484"),
        ("localhost:8484", "https://a.example.com"),
        # A proxy that ends TLS and asks by an address of its own.
        ("127.0.0.1:8484", "https://api.example.com"),
    ],
)
def test_own_pages_and_those_that_are_named_may_call(host: str, origin: str) -> None:
    assert _code(NAMED, host, origin) is None


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example.com",
        "http://localhost:3000",
        "http://localhost",
        "null",
        "",
        "http://[",
        "https://b.a.example.com",
    ],
)
def test_other_pages_are_refused(origin: str) -> None:
    assert _code(NAMED, "localhost:8484", origin) == "foreign_origin"


def test_name_that_it_listens_at_is_its_own_and_other_ports_of_it_are_other_pages() -> None:
    hosts = Hosts(own="Box.example.com")
    assert _code(hosts, "box.example.com:8484", "http://box.example.com:8484") is None
    assert _code(hosts, "localhost:8484", "http://localhost:8484") is None
    assert _code(hosts, "box.example.com:8484", "http://box.example.com:3000") == "foreign_origin"
    assert _code(Hosts(), "box.example.com:8484") == "foreign_host"


def test_all_may_be_let_in() -> None:
    everywhere = Hosts(["*"], ["*"])
    assert _code(everywhere, "evil.example.com", "https://evil.example.com") is None
    # A name alone lets in no page.
    assert _code(Hosts(["*"]), "a.example.com", "https://evil.example.com") == "foreign_origin"


def test_settings_have_commas_between() -> None:
    assert (listed(None), listed(" a, b,")) == ([], ["a", "b"])
