"""Read a file of MCP servers: `{"mcpServers": {name: server}}`, the format of other MCP clients.

A server is a program (`command`, `args`, `env`, `cwd`) or an address (`url`, `headers`). The key `dagwright` contains
settings of Dagwright, such as effects and timeouts, for all tools of the server and for single tools. `${NAME}` in a
string is replaced with an environment variable, except under the key `dagwright`.
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

from dagwright.core.errors import pointer
from dagwright.core.model.times import DurationText
from dagwright.core.name_hints import find_nearest_names, suggestion
from dagwright.tools.errors import ToolLoadError


@dataclass(frozen=True, slots=True)
class Variables:
    """Functions that return the value of `${NAME}` in a file; `None` if the variable is not set.

    Args:
        find_secret: finds values that must be redacted.
        find_plain: finds values that are not secret.
    """

    find_secret: Callable[[str], str | None]
    find_plain: Callable[[str], str | None]


_IGNORED_KEYS = frozenset(
    {"alwaysAllow", "autoApprove", "description", "disabledTools", "gallery", "icon", "name", "version"}
)
"""Ignored keys, which other MCP clients use."""
_HTTP_TYPES = ("http", "streamable-http", "streamableHttp", "streamable_http")
_VARIABLE = re.compile(r"\$?\$\{([A-Za-z0-9_]+)(?::-([^}]*))?\}")
_WEB_ADDRESS = re.compile(r"https?://[^\s/]+\S*")


class ToolRules(BaseModel):
    """Settings for tools, as written in a file. `None`: use the value that the server reports, or the default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    effects: Literal["read", "idempotent", "write"] | None = None
    """Never `pure`: the response of a server may change."""
    timeout: DurationText | None = None
    """Timeout of one attempt."""
    max_parallel: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of concurrent calls of one tool in one run."""
    result: Literal["json", "text"] | None = None
    """`json` (default) parses a text that is a JSON object or list; `text` returns every text unchanged."""

    def with_defaults(self, defaults: "ToolRules") -> "ToolRules":
        """Merge two sets of rules: these rules override `defaults`."""
        names = set(ToolRules.model_fields)
        dumps = (rules.model_dump(exclude_none=True, include=names) for rules in (defaults, self))
        return ToolRules(**{name: value for dump in dumps for name, value in dump.items()})


class ServerRules(ToolRules):
    """Settings for all tools of a server."""

    tools: dict[str, ToolRules] = {}
    """Settings for single tools: name on the server -> rules, which override the settings for all tools."""


class _Server(BaseModel):
    """A server as written in the file."""

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
    """A server that is run as a subprocess, connected through its standard input and output."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: Path

    def __str__(self) -> str:
        """Return the program for display: without its arguments, which may be secret."""
        return f"program {self.command}"


@dataclass(frozen=True, slots=True)
class Address:
    """A server with streamable HTTP."""

    url: str
    headers: Mapping[str, str] = field(repr=False)

    def __str__(self) -> str:
        """Return the URL for display: without its query and user, which may be secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One server of a file.

    Args:
        name: prefix of the names of its tools.
        endpoint: program or address of the server.
        secrets: values to redact in all output of the server.
        identity: hash (16 hex digits) of the server in the file, before variables are replaced.
    """

    name: str
    endpoint: Program | Address
    rules: ServerRules = field(default_factory=ServerRules)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    identity: str = ""


def read_servers(file: Path, variables: Variables) -> list[ServerConfig]:
    """Return the servers of a file in order, without disabled servers.

    Args:
        file: file to read; relative paths in it start from its directory.

    Raises:
        ToolLoadError: the file is invalid; the message lists all problems, each with a JSON pointer.
    """
    entries = _read_entries(file)
    servers: list[ServerConfig] = []
    problems: list[str] = []
    for name, server in entries.items():
        try:
            server_config = _ServerReader(name, file.parent.resolve(), variables).read(server)
        except _ServerInvalid as invalid:
            problems += [f"{pointer('mcpServers', name, *path)}: {message}" for path, message in invalid.problems]
            continue
        if server_config is not None:
            servers.append(server_config)
    if problems:
        raise ToolLoadError(f"{file.name}: {'; '.join(problems)}")
    if not servers:
        raise ToolLoadError(f"{file.name} has no enabled MCP server")
    return servers


def _read_entries(file: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8-sig"), object_pairs_hook=_reject_duplicate_keys)
    except FileNotFoundError:
        raise ToolLoadError(f"There is no file {file} of MCP servers") from None
    except json.JSONDecodeError as error:
        message = f"{file.name} is not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        raise ToolLoadError(message) from None
    except _DuplicateKey as duplicate:
        raise ToolLoadError(f"{file.name}: the key {duplicate.args[0]!r} occurs twice in one object") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ToolLoadError(f"{file.name} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise ToolLoadError(f"{file.name} is not a file of MCP servers: it is not a JSON object")
    servers = document.get("mcpServers")
    if not isinstance(servers, dict):
        nearest_keys = find_nearest_names("mcpServers", list(document), limit=1)
        missing_key_text = "; it has no such key" + (f", but {nearest_keys[0]!r}" if nearest_keys else "")
        hint = missing_key_text if servers is None else ""
        raise ToolLoadError(f'{file.name}: /mcpServers: expected an object {{"name": server}}{hint}')
    return servers


class _DuplicateKey(Exception):
    """A key occurs twice in an object, so a server would be lost."""


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, value in pairs:
        if key in document:
            raise _DuplicateKey(key)
        document[key] = value
    return document


class _ServerInvalid(Exception):
    """Problems of a server, each with its path inside the server and a message."""

    def __init__(self, *problems: tuple[tuple[str | int, ...], str]) -> None:
        super().__init__(problems)
        self.problems = problems


class _ServerReader:
    """Validates one server of a file."""

    def __init__(self, name: str, folder: Path, variables: Variables) -> None:
        self._name = name
        self._folder = folder
        self._variables = variables
        self._secrets: list[str] = []
        self._problems: list[tuple[tuple[str | int, ...], str]] = []

    def read(self, document: Any) -> ServerConfig | None:
        if not isinstance(document, dict):
            raise _ServerInvalid(((), "expected an object with command or url"))
        if document.get("disabled") is True:
            return None
        settings = {key: value for key, value in document.items() if key not in _IGNORED_KEYS}
        rules = settings.pop("dagwright", {})
        server = self._validate({**self._with_variables(settings, ()), "dagwright": rules})
        endpoint = self._endpoint_of(server)
        if self._problems or endpoint is None:
            raise _ServerInvalid(*self._problems)
        identity = hashlib.sha256(json.dumps([self._name, settings], sort_keys=True).encode()).hexdigest()[:16]
        return ServerConfig(self._name, endpoint, server.dagwright, tuple(self._secrets), identity)

    def _validate(self, settings: dict[str, Any]) -> _Server:
        try:
            return _Server.model_validate(settings)
        except ValidationError as error:
            self._problems += [
                _config_problem(detail) for detail in error.errors(include_url=False, include_input=False)
            ]
            raise _ServerInvalid(*self._problems) from None

    def _endpoint_of(self, server: _Server) -> Program | Address | None:
        if server.type == "sse":
            self._add_problem(
                "type", "the transport sse is not supported; set url to the streamable HTTP address of the server"
            )
        elif server.type not in (None, "stdio", *_HTTP_TYPES):
            self._add_problem("type", f"{server.type!r} is neither stdio nor http")
        if (server.command is None) == (server.url is None):
            self._problems.append(((), "expected exactly one of command (a program) and url (streamable HTTP)"))
            return None
        if server.command is not None:
            if server.type in _HTTP_TYPES:
                self._add_problem("type", f"{server.type!r} needs a url, not a command")
            if server.headers:
                self._add_problem("headers", "a program has no headers; use env")
            cwd = self._folder / Path(server.cwd or "").expanduser()
            if not cwd.is_dir():
                self._add_problem("cwd", f"there is no folder {server.cwd}")
            return Program(server.command, tuple(server.args), server.env, cwd)
        assert server.url is not None
        if server.type == "stdio":
            self._add_problem("type", "'stdio' needs a command, not a url")
        for key in ("args", "env", "cwd"):
            if getattr(server, key):
                self._add_problem(key, "only a program has this key; a server with a url has headers")
        if not _WEB_ADDRESS.fullmatch(server.url):
            self._add_problem("url", "it is not a URL such as https://mcp.example.com/mcp")
        return Address(server.url, server.headers)

    def _add_problem(self, key: str, message: str) -> None:
        self._problems.append(((key,), message))

    def _with_variables(self, value: Any, path: tuple[str | int, ...]) -> Any:
        """Return a value with the variables in its strings replaced."""
        if isinstance(value, str):
            return _VARIABLE.sub(lambda match: self._value_of(match, path), value)
        if isinstance(value, list):
            return [self._with_variables(part, (*path, index)) for index, part in enumerate(value)]
        if isinstance(value, dict):
            return {key: self._with_variables(part, (*path, key)) for key, part in value.items()}
        return value

    def _value_of(self, match: re.Match[str], path: tuple[str | int, ...]) -> str:
        if match[0].startswith("$$"):
            return match[0][1:]
        secret = self._variables.find_secret(match[1])
        value = secret or self._variables.find_plain(match[1])
        if value:
            # Values in `env` and `headers` may be tokens, so they are redacted even if they are not set as secrets.
            if secret or path[0] in ("env", "headers"):
                self._secrets.append(value)
            return value
        if match[2] is None:
            self._problems.append((path, f"the variable {match[1]} is not set; set DAGWRIGHT_SECRET_{match[1]}"))
        return match[2] or ""


def _config_problem(error: Mapping[str, Any]) -> tuple[tuple[str | int, ...], str]:
    path = tuple(error["loc"])
    if error["type"] != "extra_forbidden":
        return path, str(error["msg"]).removeprefix("Value error, ")
    if path == ("timeout",):
        return path, 'the unit of a timeout differs between programs; write "dagwright": {"timeout": "30s"}'
    allowed_keys = _allowed_keys(path)
    return (
        path,
        f"unknown key; {suggestion(str(path[-1]), allowed_keys) or 'known keys are ' + ', '.join(allowed_keys)}",
    )


def _allowed_keys(path: tuple[str | int, ...]) -> list[str]:
    if path[0] != "dagwright":
        return list(_Server.model_fields)
    return list(ServerRules.model_fields if len(path) == 2 else ToolRules.model_fields)
