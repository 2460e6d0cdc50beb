"""Reads a file of MCP servers: `{"mcpServers": {name: server}}`, as other programs have it.

A server is a program (`command`, `args`, `env`, `cwd`) or an address (`url`, `headers`). Beside that stands what is
ours, under `dagwright`: effects, time-outs and the like, for all tools of the server and for single ones. `${NAME}` in
any of its texts is a variable of the environment.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dagwright.core.expressions.references import suggestion
from dagwright.core.model.errors import pointer
from dagwright.core.model.times import DurationText
from dagwright.tools.errors import ToolLoadError


@dataclass(frozen=True, slots=True)
class Variables:
    """What `${NAME}` stands for: name -> value, `None` if it is not set.

    Args:
        secret: what must not be seen anywhere.
        other: any other variable.
    """

    secret: Callable[[str], str | None]
    other: Callable[[str], str | None]


_IGNORED = frozenset(
    {"alwaysAllow", "autoApprove", "description", "disabledTools", "gallery", "icon", "name", "version"}
)
"""Keys of other programs that change nothing here."""
_STREAMABLE = ("http", "streamable-http", "streamableHttp", "streamable_http")
_VARIABLE = re.compile(r"\$?\$\{([A-Za-z0-9_]+)(?::-([^}]*))?\}")
_WEB_ADDRESS = re.compile(r"https?://[^\s/]+\S*")


class ToolRules(BaseModel):
    """What a file says of tools; `None` is what the server says, or the default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    effects: Literal["read", "idempotent", "write"] | None = None
    """Never `pure`: whoever answers may change its mind."""
    timeout: DurationText | None = None
    """Of one attempt."""
    max_parallel: Annotated[int, Field(ge=1)] | None = None
    """Calls of one tool that one run keeps in flight."""
    result: Literal["json", "text"] | None = None
    """Whether a text that is a JSON object or list becomes that (`json`, the default) or stays a text."""

    def over(self, others: "ToolRules") -> "ToolRules":
        """Returns these rules, with those of `others` where these say nothing."""
        names = set(ToolRules.model_fields)
        said = (rules.model_dump(exclude_none=True, include=names) for rules in (others, self))
        return ToolRules(**{name: value for one in said for name, value in one.items()})


class ServerRules(ToolRules):
    """What a file says of a server's tools, and of single ones: name as the server has it -> rules."""

    tools: dict[str, ToolRules] = {}


class _Server(BaseModel):
    """A server as it is written."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: str | None = None
    command: Annotated[str, Field(min_length=1)] | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    disabled: bool = False
    dagwright: ServerRules = ServerRules()


@dataclass(frozen=True, slots=True)
class Program:
    """A server that is a program of ours, spoken to through its standard input and output."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: Path

    def __str__(self) -> str:
        """Returns the program as it can be told: without its arguments, which may be secret."""
        return f"program {self.command}"


@dataclass(frozen=True, slots=True)
class Address:
    """A server that speaks streamable HTTP."""

    url: str
    headers: Mapping[str, str] = field(repr=False)

    def __str__(self) -> str:
        """Returns the address as it can be told: without its query and user, which may be secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server of a file.

    Args:
        name: the first part of its tools' names.
        where: how it is reached.
        secrets: what is hidden in all that it says.
        identity: 16 hex digits, of the server as it is written, so without any value of a variable.
    """

    name: str
    where: Program | Address
    rules: ServerRules = field(default_factory=ServerRules)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    identity: str = ""


def read_servers(file: Path, variables: Variables) -> list[ServerConfig]:
    """Returns the servers of a file that are not disabled, in order.

    Args:
        file: relative paths in it start from its folder.

    Raises:
        ToolLoadError: with everything that is wrong, each with its place in the file as a JSON pointer.
    """
    written = _servers_in(file)
    servers: list[ServerConfig] = []
    problems: list[str] = []
    for name, server in written.items():
        try:
            found = _Reading(name, file.parent.resolve(), variables).read(server)
        except _Wrong as wrong:
            problems += [f"{pointer('mcpServers', name, *place)}: {said}" for place, said in wrong.told]
            continue
        if found is not None:
            servers.append(found)
    if problems:
        raise ToolLoadError(f"{file.name}: {'; '.join(problems)}")
    if not servers:
        raise ToolLoadError(f"{file.name} has no MCP server that is not disabled")
    return servers


def _servers_in(file: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8-sig"), object_pairs_hook=_object_of)
    except FileNotFoundError:
        raise ToolLoadError(f"There is no file {file} of MCP servers") from None
    except json.JSONDecodeError as error:
        message = f"{file.name} is no JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        raise ToolLoadError(message) from None
    except _KeyTwice as twice:
        raise ToolLoadError(f"{file.name}: the key {twice.args[0]!r} stands twice in one object") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ToolLoadError(f"{file.name} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise ToolLoadError(f"{file.name} is no file of MCP servers: it is no JSON object")
    servers = document.get("mcpServers")
    if not isinstance(servers, dict):
        near = "" if servers is not None else f"; {suggestion('mcpServers', list(document)) or 'it has no such key'}"
        raise ToolLoadError(f'{file.name}: /mcpServers: expected an object {{"name": server}}{near}')
    return servers


class _KeyTwice(Exception):
    """An object has a key twice: of two servers with one name the first would be lost."""


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _KeyTwice(key)
        made[key] = value
    return made


class _Wrong(Exception):
    """What is wrong with a server: place in it -> sentence."""

    def __init__(self, *told: tuple[tuple[str | int, ...], str]) -> None:
        super().__init__(told)
        self.told = told


class _Reading:
    """Reads one server."""

    def __init__(self, name: str, folder: Path, variables: Variables) -> None:
        self._name = name
        self._folder = folder
        self._variables = variables
        self._secrets: list[str] = []
        self._problems: list[tuple[tuple[str | int, ...], str]] = []

    def read(self, written: Any) -> ServerConfig | None:
        if not isinstance(written, dict):
            raise _Wrong(((), "expected an object with command or url"))
        if written.get("disabled") is True:
            return None
        kept = {key: value for key, value in written.items() if key not in _IGNORED}
        rules = kept.pop("dagwright", {})
        server = self._validated({**self._filled(kept, ()), "dagwright": rules})
        where = self._where(server)
        if self._problems or where is None:
            raise _Wrong(*self._problems)
        identity = hashlib.sha256(json.dumps([self._name, kept], sort_keys=True).encode()).hexdigest()[:16]
        return ServerConfig(self._name, where, server.dagwright, tuple(self._secrets), identity)

    def _validated(self, filled: dict[str, Any]) -> _Server:
        try:
            return _Server.model_validate(filled)
        except ValidationError as error:
            self._problems += [_told(one) for one in error.errors(include_url=False, include_input=False)]
            raise _Wrong(*self._problems) from None

    def _where(self, server: _Server) -> Program | Address | None:
        if server.type == "sse":
            self._wrong("type", "the old transport sse is not spoken; give the server's streamable HTTP address as url")
        elif server.type not in (None, "stdio", *_STREAMABLE):
            self._wrong("type", f"{server.type!r} is neither stdio nor http")
        if (server.command is None) == (server.url is None):
            self._problems.append(((), "expected exactly one of command (a program) and url (streamable HTTP)"))
            return None
        if server.command is not None:
            if server.type in _STREAMABLE:
                self._wrong("type", f"{server.type!r} needs a url, and there is a command")
            if server.headers:
                self._wrong("headers", "a program has none; give it what it needs as env")
            cwd = self._folder / Path(server.cwd or "").expanduser()
            if not cwd.is_dir():
                self._wrong("cwd", f"there is no folder {server.cwd}")
            return Program(server.command, tuple(server.args), server.env, cwd)
        assert server.url is not None
        if server.type == "stdio":
            self._wrong("type", "'stdio' needs a command, and there is a url")
        for key in ("args", "env", "cwd"):
            if getattr(server, key):
                self._wrong(key, "only a program has it; a server that is reached by its url has headers")
        if not _WEB_ADDRESS.fullmatch(server.url):
            self._wrong("url", "it is no address such as https://mcp.example.com/mcp")
        return Address(server.url, server.headers)

    def _wrong(self, key: str, said: str) -> None:
        self._problems.append(((key,), said))

    def _filled(self, value: Any, place: tuple[str | int, ...]) -> Any:
        """Returns a value with the variables in its texts filled in."""
        if isinstance(value, str):
            return _VARIABLE.sub(lambda match: self._value_of(match, place), value)
        if isinstance(value, list):
            return [self._filled(part, (*place, index)) for index, part in enumerate(value)]
        if isinstance(value, dict):
            return {key: self._filled(part, (*place, key)) for key, part in value.items()}
        return value

    def _value_of(self, match: re.Match[str], place: tuple[str | int, ...]) -> str:
        if match[0].startswith("$$"):
            return match[0][1:]
        secret = self._variables.secret(match[1])
        value = secret or self._variables.other(match[1])
        if value:
            # A path in `args` may be seen; a token that nobody called a secret stands here.
            if secret or place[0] in ("env", "headers"):
                self._secrets.append(value)
            return value
        if match[2] is None:
            self._problems.append((place, f"the variable {match[1]} is not set; set DAGWRIGHT_SECRET_{match[1]}"))
        return match[2] or ""


def _told(error: Mapping[str, Any]) -> tuple[tuple[str | int, ...], str]:
    place = tuple(error["loc"])
    if error["type"] != "extra_forbidden":
        return place, str(error["msg"]).removeprefix("Value error, ")
    if place == ("timeout",):
        return place, 'programs differ in its unit; write "dagwright": {"timeout": "30s"}'
    known = _known_at(place)
    return place, f"unknown key; {suggestion(str(place[-1]), known) or 'known are ' + ', '.join(known)}"


def _known_at(place: tuple[str | int, ...]) -> list[str]:
    if place[0] != "dagwright":
        return list(_Server.model_fields)
    return list(ServerRules.model_fields if len(place) == 2 else ToolRules.model_fields)
