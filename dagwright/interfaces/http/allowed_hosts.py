"""Protect a gateway that has no keys from pages of other sites.

A page of another site can make a browser on this machine send requests to the gateway. The header `Origin` then
names that site. With DNS rebinding, the page can even read the responses, and the header `Host` also names that site.
"""

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from dagwright.interfaces.http.error_codes import ErrorCode

ALL = "*"
"""Any host or origin."""
_LOCALHOST = "localhost"


class AllowedHosts:
    """Hosts of a gateway, and origins that may call it.

    IP addresses are always accepted as hosts, because DNS rebinding needs a name.

    Args:
        names: hosts of a proxy in front of the gateway. Pages of these hosts may call the gateway from any port and
            scheme.
        origins: origins of other pages that may call the gateway, such as `https://a.example.com`.
        listening_host: host that the gateway listens on. Pages of this host and of `localhost` may call the
            gateway only if they have the port of the gateway.
    """

    def __init__(
        self, names: Iterable[str] = (), origins: Iterable[str] = (), *, listening_host: str = _LOCALHOST
    ) -> None:
        self._gateway_names = {_LOCALHOST, listening_host.lower()}
        self._proxy_names = {name.lower() for name in names}
        self._origins = {origin.lower() for origin in origins}

    def rejection(self, headers: Headers) -> tuple[ErrorCode, str] | None:
        """Return the error code and message for a request to reject; `None` to accept the request.

        This protects browsers only: other clients can send any header.
        """
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        if host and not self._is_gateway_host(_host_name(f"//{host}")):
            message = f"{host!r:.100} is not a host of this gateway: add it to DAGWRIGHT_API_HOSTS"
            return ErrorCode.FOREIGN_HOST, message
        if origin is not None and not self._may_call(origin.lower(), host):
            message = f"pages of {origin!r:.100} may not call this gateway: add the origin to DAGWRIGHT_API_ORIGINS"
            return ErrorCode.FOREIGN_ORIGIN, message
        return None

    def _is_gateway_host(self, name: str) -> bool:
        return (
            name in self._gateway_names or _is_ip_address(name) or name in self._proxy_names or ALL in self._proxy_names
        )

    def _may_call(self, origin: str, host: str) -> bool:
        if origin in self._origins or ALL in self._origins:
            return True
        # A proxy may replace the header `Host`. Proxies do not replace `Origin`.
        return (bool(host) and origin.partition("://")[2] == host) or _host_name(origin) in self._proxy_names


def split_at_commas(text: str | None) -> list[str]:
    """Return the comma-separated values of a setting."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _host_name(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _is_ip_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
