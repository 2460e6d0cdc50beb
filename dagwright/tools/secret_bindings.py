"""Which tools and hosts may receive a secret.

A secret goes to a tool that declares it in code (`@tool(secrets=[...])`) or that a setting names. Tools that are
`pure` or declare an empty list never get a secret, because the plan can send their results anywhere.
"""

import ipaddress
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from dagwright.core.model.tools import ToolDeclaration


@dataclass(frozen=True, slots=True)
class SecretBinding:
    """The tools and hosts that the settings bind a secret to.

    Args:
        tools: names of tools, or patterns such as `shop.*`.
        hosts: host names that `http_request` may send the secret to, with a port to allow only that port;
            `*.example.com` matches every host under the domain. Plain HTTP is allowed only for loopback hosts and for
            hosts written as `http://host`; `https://host` never allows plain HTTP.
    """

    tools: Sequence[str] = ()
    hosts: Sequence[str] = ()


BindingOf = Callable[[str], SecretBinding]
"""Return the binding of a secret by its name."""


def no_binding(name: str) -> SecretBinding:  # noqa: ARG001 - the signature of a binding lookup
    """Return an empty binding."""
    return SecretBinding()


def problem_of_secret(tool: ToolDeclaration, name: str, binding: SecretBinding) -> str | None:
    """Return why a tool may not get a secret; `None` if the tool may get the secret."""
    if tool.never_takes_secrets:
        return f"{tool.name!r} takes no secrets: its results could expose {name!r}"
    if name in (tool.secrets or ()):
        return None
    variable = f"DAGWRIGHT_SECRET_{name}"
    if tool.sends_to_hosts:
        if binding.hosts:
            return None
        return f"the secret {name!r} is bound to no host: set the hosts in {variable}_HOSTS on the worker"
    if any(fnmatchcase(tool.name, pattern) for pattern in binding.tools):
        return None
    return (
        f"the secret {name!r} is not bound to {tool.name!r}: declare it with @tool(secrets=[{name!r}]), or name the "
        f"tool in {variable}_TOOLS on the worker"
    )


def hosts_of_secrets(names: Iterable[str], binding_of: BindingOf) -> tuple[tuple[str, ...], ...]:
    """Return the hosts of each secret of a call. A request may go only to hosts that all secrets permit."""
    return tuple(tuple(binding_of(name).hosts) for name in names)


def may_send_to(scheme: str, host: str, port: int | None, hosts_by_secret: Iterable[Sequence[str]]) -> bool:
    """Return whether a request with secrets may go to a host.

    Args:
        scheme: `http` or `https`.
        hosts_by_secret: permitted hosts of each secret in the request.
    """
    return all(
        any(_matches(scheme, host.lower(), port, pattern.lower()) for pattern in patterns)
        for patterns in hosts_by_secret
    )


def _matches(scheme: str, host: str, port: int | None, pattern: str) -> bool:
    pattern_scheme, separator, host_and_port = pattern.rpartition("://")
    if separator and pattern_scheme not in ("http", "https"):
        return False
    if scheme != "https" and (pattern_scheme == "https" or (not pattern_scheme and not _is_loopback(host))):
        return False
    return _matches_host(host, port, host_and_port.removesuffix("/"))


def _matches_host(host: str, port: int | None, pattern: str) -> bool:
    name, colon, number = pattern.rpartition(":")
    if colon and number.isdecimal() and not name.endswith(":"):
        pattern = name
        if str(port) != number:
            return False
    pattern = pattern.strip("[]")
    return host.endswith(pattern[1:]) and host != pattern[2:] if pattern.startswith("*.") else host == pattern


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
