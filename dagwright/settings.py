"""Settings from environment variables, read once (docs/reference/settings.md has the list).

This module is the only place that reads environment variables; `worker.py`, `starter.py` and similar programs create
one `Settings` and pass it on. Libraries read their own variables: `temporalio.envconfig` reads `TEMPORAL_…`, and
boto3 reads `AWS_…`.
"""

import os
import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Literal, LiteralString, TypeVar, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from dagwright.core.errors import DagwrightError
from dagwright.core.model.call_limits import CallLimitInvalid, parse_limits
from dagwright.core.model.times import MAX_DURATION
from dagwright.core.plugins import installed_plugins
from dagwright.planning.model_calls.model_requests import MODEL_NAME_CHARACTERS
from dagwright.planning.rounds.rounds_spec import (
    DEFAULT_MAX_ROUNDS,
    DEFAULT_SYNTHESIS,
    QUESTION_TIMEOUT_S,
    ROUNDS_LIMIT,
    WORKER_TIMEOUT_S,
    RoundsLimits,
    Synthesis,
)
from dagwright.protocol.webhooks import signing_key
from dagwright.store.errors import LocationInvalid
from dagwright.store.location import parse_location

SERPER_BASE_URL = "https://google.serper.dev"
"""Address of the Serper search service, from its documentation."""

WorkerRole = Literal["all", "workflows", "tools"]
WORKFLOW_SLOTS = 8
"""Concurrent workflow tasks. They share one interpreter and have a time limit: a hundred tasks that replay after a
restart would all exceed the limit and restart (docs/decisions/0048)."""
ACTIVITY_SLOTS, CACHED_RUNS = 100, 1000
"""Defaults of Temporal's SDK."""
ACTIVITY_POLLERS = 10
"""More than the SDK's 5: a wide fan-out is dispatched faster (docs/contributing/internals/temporal.md)."""
WORKFLOW_POLLERS, NEW_RUNS_SHARE = 20, 0.05
"""Number of concurrent polls for workflow tasks. One of 20 polls (`NEW_RUNS_SHARE`) is for runs that the worker does
not have in memory, so a busy worker continues its runs first (docs/contributing/internals/temporal.md)."""

_PREFIX = "DAGWRIGHT_"
HIDDEN_VALUE = "hidden_value"
"""Error type of a validator whose message must not show the value, which may be a secret."""
SHOWN_VALUE = "shown_value"
"""Error type of a validator whose message shows the value."""
WEB_ADDRESS = re.compile(r"https?://[^\s/]+(/\S*)?")
_LISTENING_ADDRESS = re.compile(r"([^\s:/\[\]]+|\[[0-9a-fA-F:.]+\]):\d{1,5}")
_MAX_DURATION_S = MAX_DURATION.total_seconds()
_BRACKETED_ADDRESS = re.compile(r"\[.*\]")
"""An IPv6 address in brackets, which contains colons."""
_SECRET_NAME = re.compile(r"[A-Za-z0-9_]+")

_TOOLS_SUFFIX, _HOSTS_SUFFIX = "_TOOLS", "_HOSTS"
"""Suffixes of the variables that bind a secret to tools or hosts. The name of a secret cannot end with them."""

_SETTINGS_WITHOUT_EFFECT_ON_RUNS = frozenset(
    {
        *("state_dir", "ui_url", "log_level", "log_format", "plans", "no_color", "cache_home"),
        *("api_keys", "api_requests", "api_streams", "api_runs", "api_body_bytes", "api_plan_bytes"),
        *("api_hosts", "api_origins", "api_proxies", "health_address", "drain_s", "tools_queue"),
        *("serve", "workflow_slots", "activity_slots", "cached_runs", "activity_pollers", "target_cpu"),
        *("target_memory", "otel_endpoint"),
    },
)
"""Settings that do not affect runs; all other settings are compared with those of the background workers."""

_TEMPORAL_TLS_VARIABLES = (
    *("TEMPORAL_TLS_CLIENT_CERT_PATH", "TEMPORAL_TLS_CLIENT_KEY_PATH"),
    "TEMPORAL_TLS_SERVER_CA_CERT_PATH",
)
"""Variables of Temporal's client that name files. They are read here so that the file tools can reject these files."""
_PATH_SETTINGS = frozenset({"files_root", "prices", "payload_store", "database_url"})
"""Settings that may be the path of a file or folder."""
_SQLITE_URL = re.compile(r"(sqlite[^:/]*:///)([^?]*)(.*)", re.DOTALL)


class SettingsError(DagwrightError):
    """An environment variable has an invalid value. The message is one sentence with the name of the variable."""


class Settings(BaseModel):
    """All settings of a Dagwright process; frozen, so it can be shared freely.

    The variable of a field is `DAGWRIGHT_` and the name of the field, unless the field has an alias. An empty variable
    counts as not set. Keyword arguments override the environment.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True, validate_default=True)

    state_dir: Path = Field(default=Path(".dagwright"), validate_default=True)
    """Folder of the local Temporal server, the default database and the default payload store; an absolute path."""
    database_url: str = Field(default_factory=lambda values: _path_in_state_dir(values, "dagwright.db", "sqlite:///"))
    """SQLAlchemy URL of the database of added agents. Applications may also store their data in this database."""
    payload_store: str = Field(default_factory=lambda values: _path_in_state_dir(values, "payloads", ""))
    """Store of large values: an absolute folder, or `s3://bucket/prefix`."""
    ui_url: str | None = None
    """Address of the Temporal UI of a server that `TEMPORAL_…` variables configure, without a trailing slash."""
    notify_url: str | None = None
    """Webhook URL, called when a request to a person opens, is escalated or closes, and for each reminder."""
    notify_secret: SecretStr | None = Field(default=None, validate_default=True)
    """Secret that signs webhook notifications; a value with the prefix `whsec_` is base64."""
    task_queue: str = Field(default="dagwright", min_length=1, max_length=200)
    """Task queue of workflows and built-in tools."""
    tools_queue: str | None = Field(default=None, max_length=200)
    """Queue of all tools of `--tools` and `--agents`. By default, each file or module has a queue named after it."""
    limits: str = ""
    """Limits of calls across all runs, separated by semicolons: `tool:http_request 20/s; owner:ann concurrency=5`."""
    health_address: str | None = None
    """`HOST:PORT` at which `worker.py` serves `/livez` and `/readyz`; disabled by default."""
    drain_s: float | None = Field(default=None, ge=0, le=_MAX_DURATION_S)
    """Seconds that calls of `write` tools may continue after a worker stops; by default, the timeout of each call."""
    serve: WorkerRole = "all"
    """What `worker.py` serves: `workflows` executes runs, `tools` calls tools and models, `all` does both."""
    workflow_slots: int = Field(default=WORKFLOW_SLOTS, ge=2, le=1000)
    """Concurrent workflow tasks, for each queue of a worker."""
    activity_slots: int = Field(default=ACTIVITY_SLOTS, ge=1, le=10_000)
    """Concurrent calls, for each queue of a worker."""
    cached_runs: int = Field(default=CACHED_RUNS, ge=0, le=100_000)
    """Runs that a worker holds in memory, for each of its queues; other runs are replayed when they continue."""
    activity_pollers: int = Field(default=ACTIVITY_POLLERS, ge=1, le=1000)
    """Concurrent polls for calls, for each queue of a worker."""
    target_cpu: float | None = Field(default=None, gt=0, le=1)
    """Share of the machine's CPU up to which a worker takes more calls; unlimited by default."""
    target_memory: float | None = Field(default=None, gt=0, le=1)
    """Share of the machine's memory up to which a worker takes more calls; unlimited by default."""
    files_root: Path = Field(default=Path(), validate_default=True)
    """Folder that the file tools may access; absolute, by default the current folder."""
    allow_private_addresses: bool = False
    """Whether `http_request` may connect to private, loopback and link-local addresses."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level of Dagwright's own log lines."""
    log_format: Literal["console", "json"] = "console"
    """`console` for people, `json` for one JSON object per line."""
    model: str | None = Field(default=None, max_length=MODEL_NAME_CHARACTERS)
    """Default model of planners and agents, unless a command names another model."""
    max_rounds: int = Field(default=DEFAULT_MAX_ROUNDS, ge=1, le=ROUNDS_LIMIT)
    """Default maximum number of rounds in a run with the profile `rounds`."""
    worker_timeout_s: float = Field(default=WORKER_TIMEOUT_S, gt=0, le=_MAX_DURATION_S)
    """Default timeout in seconds of worker tools that declare no timeout, in a run with the profile `rounds`."""
    question_timeout_s: float = Field(default=QUESTION_TIMEOUT_S, gt=0, le=_MAX_DURATION_S)
    """Default timeout in seconds of a run with the profile `rounds`."""
    synthesis: Synthesis = DEFAULT_SYNTHESIS
    """Default synthesis of the answer in the profile `rounds`: assembled from slots, or written by a model."""
    plans: Path | None = None
    """Folder of templates: plans that are published by name."""
    api_keys: Path = Field(default_factory=lambda values: values["state_dir"] / "api-keys.json")
    """File of the API keys, absolute; while the file has no keys, the API needs no key."""
    api_requests: int = Field(default=600, ge=1)
    """Requests per minute for each key, at each gateway."""
    api_streams: int = Field(default=100, ge=1)
    """Concurrent streams for each key, at each gateway."""
    api_runs: int = Field(default=100, ge=1)
    """Concurrent runs for each owner of keys."""
    api_body_bytes: int = Field(default=32 * 1024 * 1024, ge=1024)
    """Maximum size of a request body, in bytes."""
    api_plan_bytes: int = Field(default=8 * 1024 * 1024, ge=1024)
    """Maximum size of the body of a request with a plan, in bytes."""
    api_hosts: str | None = None
    """Comma-separated host names, besides localhost, that an API without keys accepts; `*` for any host."""
    api_origins: str | None = None
    """Comma-separated origins of web pages that may call the API, such as `https://a.example.com`; `*` for all."""
    api_proxies: str | None = None
    """Comma-separated addresses or networks of proxies that put the address of a client into `X-Forwarded-For`."""
    prices: Path | None = None
    """YAML or JSON file with prices of models, which take precedence over the built-in prices."""
    search_url: str | None = None
    """Address of the travel service that `flight_search`, `hotel_search` and `activity_search` call."""

    serper_api_key: SecretStr | None = Field(default=None, validation_alias="SERPER_API_KEY")
    """Key of the Serper search service, for `serper_web_search` and `web_search`."""
    serper_base_url: str = Field(default=SERPER_BASE_URL, validation_alias="SERPER_BASE_URL")
    """Address of the Serper search service."""
    openai_api_key: SecretStr | None = Field(default=None, validation_alias="OPENAI_API_KEY")
    """Key of the model service."""
    openai_base_url: str | None = Field(default=None, validation_alias="OPENAI_BASE_URL")
    """Address of a model service with the API of OpenAI; by default the service of OpenAI."""
    litellm_proxy_api_key: SecretStr | None = Field(default=None, validation_alias="LITELLM_PROXY_API_KEY")
    """Key of a LiteLLM proxy."""
    litellm_proxy_base_url: str | None = Field(default=None, validation_alias="LITELLM_PROXY_BASE_URL")
    """Address of a LiteLLM proxy, which is used if `OPENAI_BASE_URL` is not set."""

    otel_endpoint: str | None = Field(default=None, validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT")
    """OpenTelemetry collector that receives the spans of runs, if the extra `otel` is installed."""
    no_color: str | None = Field(default=None, validation_alias="NO_COLOR")
    """Any text turns colours off (no-color.org)."""
    cache_home: Path = Field(default=Path("~/.cache"), validate_default=True, validation_alias="XDG_CACHE_HOME")
    """The user's cache folder; the Temporal binary is stored in the subfolder `dagwright/`."""

    @model_validator(mode="before")
    @classmethod
    def _with_environment(cls, values: dict[str, Any]) -> dict[str, Any]:
        from_environment = {
            name: value
            for name, field in cls.model_fields.items()
            if name not in values and (value := os.environ.get(_variable_of(name, field)))
        }
        return from_environment | values

    @field_validator("state_dir", "files_root", "cache_home", "plans", "prices", "api_keys")
    @classmethod
    def _absolute_path(cls, path: Path | None) -> Path | None:
        return None if path is None else path.expanduser().absolute()

    @field_validator("database_url")
    @classmethod
    def _valid_database_url(cls, url: str) -> str:
        problem = _database_problem(url)
        if problem is not None:
            raise PydanticCustomError(HIDDEN_VALUE, problem)
        return url

    @field_validator("task_queue", "tools_queue")
    @classmethod
    def _valid_task_queue(cls, name: str | None) -> str | None:
        if name is None or not name.startswith("/_sys/"):
            return name
        raise PydanticCustomError(SHOWN_VALUE, "the name of a task queue cannot start with /_sys/")

    @field_validator("limits")
    @classmethod
    def _valid_limits(cls, limits: str) -> str:
        try:
            parse_limits(limits)
        except CallLimitInvalid as error:
            # pydantic formats the text as a template, in which braces would be fields.
            text = error.args[0].replace("{", "(").replace("}", ")")
            raise PydanticCustomError(SHOWN_VALUE, cast(LiteralString, text)) from None
        return limits

    @field_validator("ui_url")
    @classmethod
    def _web_address(cls, url: str | None) -> str | None:
        if url is None or WEB_ADDRESS.fullmatch(url):
            return url and url.rstrip("/")
        raise PydanticCustomError(SHOWN_VALUE, "it is not an address such as https://temporal.example.com")

    @field_validator("notify_url")
    @classmethod
    def _webhook_address(cls, url: str | None) -> str | None:
        if url is None or WEB_ADDRESS.fullmatch(url):
            return url
        # The address of a webhook often contains a secret.
        raise PydanticCustomError(HIDDEN_VALUE, "it is not an address such as https://hooks.example.com/dagwright")

    @field_validator("health_address")
    @classmethod
    def _listening_address(cls, address: str | None) -> str | None:
        if address is None or _LISTENING_ADDRESS.fullmatch(address):
            return address
        raise PydanticCustomError(SHOWN_VALUE, "an address is written HOST:PORT, such as 127.0.0.1:8485")

    @field_validator("api_proxies")
    @classmethod
    def _proxy_networks(cls, proxies: str | None) -> str | None:
        if proxies is None:
            return None
        networks = [proxy.strip() for proxy in proxies.split(",")]
        try:
            # A network whose address has host bits is rejected, because uvicorn would ignore such a network.
            for network in networks:
                ip_network(network)
        except ValueError:
            message = "each proxy is an IP address or a network, such as 10.0.0.5 or 10.0.0.0/24, with commas between"
            raise PydanticCustomError(SHOWN_VALUE, message) from None
        return ",".join(networks)

    @field_validator("notify_secret")
    @classmethod
    def _webhook_secret(cls, secret: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if secret is None and info.data.get("notify_url") is not None:
            message = "it is not set, but DAGWRIGHT_NOTIFY_URL needs it to sign notifications"
            raise PydanticCustomError(HIDDEN_VALUE, message)
        if secret is not None and not signing_key(secret.get_secret_value()):
            raise PydanticCustomError(HIDDEN_VALUE, "the part after whsec_ must be base64, and not empty")
        return secret

    @field_validator("payload_store")
    @classmethod
    def _valid_store_location(cls, location: str) -> str:
        try:
            return str(parse_location(location))
        except LocationInvalid as error:
            raise PydanticCustomError(HIDDEN_VALUE, cast(LiteralString, error.args[0])) from error

    @field_validator("log_level", "log_format", "serve", mode="before")
    @classmethod
    def _lower_case(cls, text: object) -> object:
        return text.lower() if isinstance(text, str) else text

    @property
    def llm_base_url(self) -> str | None:
        """Return the address of the model service; `None` for the default of the OpenAI client."""
        return self.openai_base_url or self.litellm_proxy_base_url

    @property
    def llm_api_key(self) -> SecretStr | None:
        """Return the key for `llm_base_url`. If this service has no key, return the key of the other service."""
        if self.openai_base_url is None and self.litellm_proxy_base_url is not None:
            return self.litellm_proxy_api_key or self.openai_api_key
        return self.openai_api_key or self.litellm_proxy_api_key

    @property
    def rounds_limits(self) -> RoundsLimits:
        """Return the default limits of runs with the profile `rounds`."""
        return RoundsLimits(self.max_rounds, self.worker_timeout_s, self.question_timeout_s, self.synthesis)

    def settings_of_runs(self) -> dict[str, str]:
        """Return the current settings that may affect a run: variable -> value, with secrets in plain text.

        Paths of the same file or folder have the same value.
        """
        prefix = f"{_PREFIX}SECRET_"
        variables = {variable: value for variable, value in os.environ.items() if variable.startswith(prefix)}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value is None or name in _SETTINGS_WITHOUT_EFFECT_ON_RUNS:
                continue
            text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
            if name in _PATH_SETTINGS:
                text = _resolve_location(text)
            variables[_variable_of(name, field)] = text
        return variables

    def secret(self, name: str) -> str | None:
        """Return the current value of `DAGWRIGHT_SECRET_<name>`; `None` if there is no such secret.

        Args:
            name: letters, digits and underscores, as in `{{secret.NAME}}`; other names have no secret.
        """
        if _SECRET_NAME.fullmatch(name) is None or name.endswith((_TOOLS_SUFFIX, _HOSTS_SUFFIX)):
            return None
        return os.environ.get(f"{_PREFIX}SECRET_{name}")

    @staticmethod
    def environment_with(variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of this process with more variables, for a program that replaces the process."""
        return {**os.environ, **variables}

    def temporal_files(self) -> tuple[Path, ...]:
        """Return the possible configuration files of Temporal's client, and the TLS files in Temporal's variables."""
        config_file = os.environ.get("TEMPORAL_CONFIG_FILE")
        folders = (os.environ.get("XDG_CONFIG_HOME") or "~/.config", "~/Library/Application Support")
        files = [config_file] if config_file else [f"{folder}/temporalio/temporal.toml" for folder in folders]
        files += filter(None, map(os.environ.get, _TEMPORAL_TLS_VARIABLES))
        return tuple(Path(file).expanduser().absolute() for file in files)

    def secret_tools(self, name: str) -> tuple[str, ...]:
        """Return the tools, or patterns of tool names, to which `DAGWRIGHT_SECRET_<name>_TOOLS` binds a secret."""
        return _names_in_variable(f"{_PREFIX}SECRET_{name}{_TOOLS_SUFFIX}")

    def secret_hosts(self, name: str) -> tuple[str, ...]:
        """Return the hosts to which `DAGWRIGHT_SECRET_<name>_HOSTS` binds a secret."""
        return _names_in_variable(f"{_PREFIX}SECRET_{name}{_HOSTS_SUFFIX}")

    def variable(self, name: str) -> str | None:
        """Return the value of `${name}` in a file of MCP servers: the secret if there is one, else the variable."""
        secret = self.secret(name)
        return os.environ.get(name) if secret is None else secret


SettingsKind = TypeVar("SettingsKind", bound=Settings)
"""Settings of the engine, or of an application."""


def load_settings() -> Settings:
    """Read the settings from the environment.

    Raises:
        SettingsError: the value of a variable is invalid.
    """
    return _read_settings(Settings, {})


def settings_as(kind: type[SettingsKind], settings: Settings) -> SettingsKind:
    """Return the settings with the fields of an application, which are read from the environment.

    Raises:
        SettingsError: the value of a variable is invalid.
    """
    if isinstance(settings, kind):
        return settings
    return _read_settings(kind, {name: getattr(settings, name) for name in settings.model_fields_set})


def app_settings(settings: Settings) -> Iterator[Settings]:
    """Yield the settings of each installed application.

    Raises:
        SettingsError: the value of a variable is invalid.
        PluginError: a plugin cannot be used.
    """
    for plugin in installed_plugins():
        if plugin.plugin.settings is not None:
            yield settings_as(plugin.load(plugin.plugin.settings), settings)


def _read_settings(kind: type[SettingsKind], values: Mapping[str, Any]) -> SettingsKind:
    try:
        return kind(**values)
    except ValidationError as error:
        first_error = error.errors(include_url=False, include_context=False)[0]
        name = str(first_error["loc"][0]) if first_error["loc"] else "environment"
        variable = name if name.isupper() else f"{_PREFIX}{name.upper()}"
        value_text = "" if first_error["type"] == HIDDEN_VALUE else f", got {first_error['input']!r}"
        raise SettingsError(f"{variable} cannot be used: {first_error['msg']}{value_text}") from error


def _variable_of(name: str, field: FieldInfo) -> str:
    """Return the environment variable of a field."""
    return str(field.validation_alias or f"{_PREFIX}{name.upper()}")


def _names_in_variable(variable: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in os.environ.get(variable, "").split(","))))


def _path_in_state_dir(values: dict[str, Any], name: str, scheme: str) -> str:
    return f"{scheme}{values['state_dir'] / name}"


def _resolve_location(url: str) -> str:
    """Return an absolute path, or the URL of a SQLite file, without links and `..`; other locations are unchanged."""
    prefix, path, suffix = match.groups() if (match := _SQLITE_URL.fullmatch(url)) else ("", url, "")
    is_path = path.startswith("/") if not prefix else not path.startswith("file:")
    return f"{prefix}{Path(path).resolve()}{suffix}" if is_path else url


def _database_problem(url: str) -> LiteralString | None:
    """Return the reason why a database URL is invalid, without the URL, which may have a password.

    This check rejects URLs that no driver can open, without importing a driver in each command. The driver checks the
    rest of the URL.
    """
    scheme, separator, rest = url.partition("://")
    kind = scheme.partition("+")[0]
    if not separator or not kind:
        return "it is not a URL such as sqlite:///dagwright.db"
    if kind == "sqlite":
        path, _, options = rest.partition("?")
        if path.strip("/") in ("", ":memory:") or "mode=memory" in options:
            return "a SQLite database in memory cannot be shared by workers; name a file"
        return None if path.startswith("/") else "the path of a SQLite file comes after three slashes"
    if kind not in ("postgresql", "postgres"):
        return "only SQLite and PostgreSQL are supported"
    host_and_port = rest.partition("?")[0].rpartition("@")[2].partition("/")[0]
    port = _BRACKETED_ADDRESS.sub("", host_and_port).partition(":")[2]
    return "its port is not a number" if port and not port.isdecimal() else None
