"""Whom a browser may carry to a gateway that asks nobody for a key: no page of somebody else.

A page of another site can have a browser of this machine send requests here. If the name of its site is made to lead
here, the browser even lets it read the answers; then `Host` is that name. If not, `Origin` is that site.
"""

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers

ALL = "*"
"""Any name, or any page."""
_OF_THIS_MACHINE = "localhost"


class Hosts:
    """Names by which a gateway is reached, and pages that may call it.

    An address of numbers is always its own: nobody can make that of another lead here.

    Args:
        names: hosts of a proxy before it: pages of these may call it from any port and scheme.
        origins: of pages, such as `https://a.example.com`, that may call it from elsewhere.
        own: where it listens itself, beside `localhost`: its pages have the port of `Host`.
    """

    def __init__(self, names: Iterable[str] = (), origins: Iterable[str] = (), *, own: str = _OF_THIS_MACHINE) -> None:
        self._own = {_OF_THIS_MACHINE, own.lower()}
        self._names = {name.lower() for name in names}
        self._origins = {origin.lower() for origin in origins}

    def refusal(self, headers: Headers) -> tuple[str, str] | None:
        """Returns why a request is not taken, a word and a sentence; `None` if it is.

        What is no browser sends whatever it likes, or nothing: it is not kept out.
        """
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        if host and not self._is_own(_name_of(f"//{host}")):
            words = f"this gateway is not known as {host!r:.100}: name that host in DAGWRIGHT_API_HOSTS"
            return "foreign_host", words
        if origin is not None and not self._may_call(origin.lower(), host):
            words = f"pages of {origin!r:.100} may not call this gateway: name that origin in DAGWRIGHT_API_ORIGINS"
            return "foreign_origin", words
        return None

    def _is_own(self, name: str) -> bool:
        return name in self._own or _is_number(name) or name in self._names or ALL in self._names

    def _may_call(self, origin: str, host: str) -> bool:
        if origin in self._origins or ALL in self._origins:
            return True
        # A proxy may have put its own name into `Host`, but none into `Origin`.
        return (bool(host) and origin.partition("://")[2] == host) or _name_of(origin) in self._names


def listed(text: str | None) -> list[str]:
    """Returns what stands between the commas of a setting."""
    return [each.strip() for each in (text or "").split(",") if each.strip()]


def _name_of(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _is_number(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
