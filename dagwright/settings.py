"""What the environment says, read once (docs/operations.md has the list).

It exists so that one place, and no other, reads environment variables; `worker.py`, `starter.py` and the
like make one `Settings` and hand it on. Variables of others are not here: `temporalio.envconfig` reads those of
Temporal, boto3 its `AWS_…`. Of Dagwright this module imports only what says whether a value has the right form.
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
from dagwright.core.model.times import LONGEST
from dagwright.core.plugins import installed_plugins
from dagwright.planning.model_calls.calls import MODEL_NAME_CHARACTERS
from dagwright.planning.rounds.rounds import (
    MAX_ROUNDS,
    MAX_ROUNDS_LIMIT,
    QUESTION_TIMEOUT_S,
    SYNTHESIS,
    WORKER_TIMEOUT_S,
    RoundsLimits,
    Synthesis,
)
from dagwright.protocol.webhooks import signing_key
from dagwright.store.errors import LocationInvalid
from dagwright.store.location import parse_location

SERPER_BASE_URL = "https://google.serper.dev"
"""The address of the Serper search service, as its own documentation gives it."""

_PREFIX = "DAGWRIGHT_"
HIDDEN_VALUE = "hidden_value"
"""Type of the error of a validator whose value the message must not show: it may hold a secret."""
SHOWN_VALUE = "shown_value"
"""Type of the error of a validator whose value the message shows."""
WEB_ADDRESS = re.compile(r"https?://[^\s/]+(/\S*)?")
_LISTENING_ADDRESS = re.compile(r"([^\s:/\[\]]+|\[[0-9a-fA-F:.]+\]):\d{1,5}")
_LONGEST_S = LONGEST.total_seconds()
_BRACKETED = re.compile(r"\[.*\]")
"""An address of IPv6, which has colons of its own."""
_SECRET_NAME = re.compile(r"[A-Za-z0-9_]+")

_TOOLS_OF_SECRET, _HOSTS_OF_SECRET = "_TOOLS", "_HOSTS"
"""Ends of the variables that bind a secret; no secret has such a name."""

_OF_COMMANDS = frozenset(
    {
        *("state_dir", "ui_url", "log_level", "log_format", "plans", "no_color", "cache_home"),
        *("api_keys", "api_requests", "api_streams", "api_runs", "api_body_bytes", "api_plan_bytes"),
        *("api_hosts", "api_origins", "api_proxies", "health_address", "drain_s", "tools_queue"),
    },
)
"""What no run depends on; whatever else is set is compared with that of the workers in the background."""

_TEMPORAL_TLS_FILES = (
    *("TEMPORAL_TLS_CLIENT_CERT_PATH", "TEMPORAL_TLS_CLIENT_KEY_PATH"),
    "TEMPORAL_TLS_SERVER_CA_CERT_PATH",
)
"""Variables of Temporal's client. They are read here only because the file tools must not open these files."""
_PLACES = frozenset({"files_root", "prices", "payload_store", "database_url"})
"""Settings that may name a file or folder."""
_SQLITE = re.compile(r"(sqlite[^:/]*:///)([^?]*)(.*)", re.DOTALL)


class SettingsError(DagwrightError):
    """The environment holds a value that can not be used; the text is one sentence naming the variable."""


class Settings(BaseModel):
    """Holds every setting of a Dagwright process; frozen, so it can be handed around freely.

    Each field comes from the variable `DAGWRIGHT_` + its name unless it names another one; an empty variable
    counts as not set. Keyword arguments win over the environment.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True, validate_default=True)

    state_dir: Path = Field(default=Path(".dagwright"), validate_default=True)
    """Folder of the server, the default database and payloads; absolute, by default in the current folder."""
    database_url: str = Field(default_factory=lambda values: _in_state_dir(values, "dagwright.db", "sqlite:///"))
    """SQLAlchemy URL of the database with the agents that were added; applications may keep their data there too."""
    payload_store: str = Field(default_factory=lambda values: _in_state_dir(values, "payloads", ""))
    """Where large values go: a folder, absolute, or `s3://bucket/prefix`."""
    ui_url: str | None = None
    """Address of the Temporal UI of a server that Temporal's own variables name, without a slash at its end."""
    notify_url: str | None = None
    """Address that is told when a request opens, is reminded, escalated, answered or ends otherwise."""
    notify_secret: SecretStr | None = Field(default=None, validate_default=True)
    """Signs what is sent there; one that begins with `whsec_` is base64."""
    task_queue: str = Field(default="dagwright", min_length=1, max_length=200)
    """The queue of workflows and built-in tools."""
    tools_queue: str | None = Field(default=None, max_length=200)
    """The queue of all tools of `--tools` and `--agents`; None is one queue for each file or module, named after it."""
    health_address: str | None = None
    """`HOST:PORT` at which `worker.py` serves `/livez` and `/readyz`; by default nowhere."""
    drain_s: float | None = Field(default=None, ge=0, le=_LONGEST_S)
    """Seconds that calls of `write` tools may continue after a worker stops; by default their own timeout."""
    files_root: Path = Field(default=Path(), validate_default=True)
    """Folder that the file tools may not leave; absolute, by default the current folder."""
    allow_private_addresses: bool = False
    """Whether `http_request` may talk to private, loopback and link-local addresses."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level of Dagwright's own log lines that is written."""
    log_format: Literal["console", "json"] = "console"
    """`console` for people, `json` for one JSON object a line."""
    model: str | None = Field(default=None, max_length=MODEL_NAME_CHARACTERS)
    """The model that planners and agents use unless a command names another."""
    max_rounds: int = Field(default=MAX_ROUNDS, ge=1, le=MAX_ROUNDS_LIMIT)
    """How often the planner of a question is asked that is answered in rounds, unless the question says it."""
    worker_timeout_s: float = Field(default=WORKER_TIMEOUT_S, gt=0, le=_LONGEST_S)
    """Seconds of one call of a worker in such a question, if the worker names no timeout itself."""
    question_timeout_s: float = Field(default=QUESTION_TIMEOUT_S, gt=0, le=_LONGEST_S)
    """Seconds of the whole question, unless it says it."""
    synthesis: Synthesis = SYNTHESIS
    """Whether the answer of such a question is assembled from slots, or written by a model; a question may say it."""
    plans: Path | None = None
    """Folder of the plans that are published by name: templates."""
    api_keys: Path = Field(default_factory=lambda values: values["state_dir"] / "api-keys.json")
    """File of the keys of the API, absolute; as long as there is none in it, the API needs none."""
    api_requests: int = Field(default=600, ge=1)
    """Requests that one key may make in a minute, at each gateway."""
    api_streams: int = Field(default=100, ge=1)
    """Streams that one key may have open at a time, at each gateway."""
    api_runs: int = Field(default=100, ge=1)
    """Runs of one owner of keys that may go on at a time."""
    api_body_bytes: int = Field(default=32 * 1024 * 1024, ge=1024)
    """Bytes that the body of one request may have."""
    api_plan_bytes: int = Field(default=8 * 1024 * 1024, ge=1024)
    """Bytes that the body of one request with a plan may have."""
    api_hosts: str | None = None
    """Names of hosts by which an API without keys is reached beside localhost, with commas between; `*` is any."""
    api_origins: str | None = None
    """Web pages that may call the API, such as `https://a.example.com`, with commas between; `*` is all."""
    api_proxies: str | None = None
    """Addresses or networks of proxies that name the address of a client in `X-Forwarded-For`, separated by commas."""
    prices: Path | None = None
    """A YAML or JSON file with what models cost, in place of the prices that ship."""
    search_url: str | None = None
    """Address of the travel service that `flight_search`, `hotel_search` and `activity_search` ask."""

    serper_api_key: SecretStr | None = Field(default=None, validation_alias="SERPER_API_KEY")
    serper_base_url: str = Field(default=SERPER_BASE_URL, validation_alias="SERPER_BASE_URL")
    openai_api_key: SecretStr | None = Field(default=None, validation_alias="OPENAI_API_KEY")
    openai_base_url: str | None = Field(default=None, validation_alias="OPENAI_BASE_URL")
    litellm_proxy_api_key: SecretStr | None = Field(default=None, validation_alias="LITELLM_PROXY_API_KEY")
    litellm_proxy_base_url: str | None = Field(default=None, validation_alias="LITELLM_PROXY_BASE_URL")

    no_color: str | None = Field(default=None, validation_alias="NO_COLOR")
    """Any text turns colours off (no-color.org)."""
    cache_home: Path = Field(default=Path("~/.cache"), validate_default=True, validation_alias="XDG_CACHE_HOME")
    """The user's cache folder; the Temporal binary is kept in `dagwright/` below it."""

    @model_validator(mode="before")
    @classmethod
    def _with_environment(cls, given: dict[str, Any]) -> dict[str, Any]:
        found = {
            name: value
            for name, field in cls.model_fields.items()
            if name not in given and (value := os.environ.get(_variable_of(name, field)))
        }
        return found | given

    @field_validator("state_dir", "files_root", "cache_home", "plans", "prices", "api_keys")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return None if path is None else path.expanduser().absolute()

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, url: str) -> str:
        wrong = _wrong_database(url)
        if wrong is not None:
            raise PydanticCustomError(HIDDEN_VALUE, wrong)
        return url

    @field_validator("task_queue", "tools_queue")
    @classmethod
    def _known_queue(cls, name: str | None) -> str | None:
        if name is None or not name.startswith("/_sys/"):
            return name
        raise PydanticCustomError(SHOWN_VALUE, "the name of a task queue cannot begin with /_sys/")

    @field_validator("ui_url")
    @classmethod
    def _web_address(cls, url: str | None) -> str | None:
        if url is None or WEB_ADDRESS.fullmatch(url):
            return url and url.rstrip("/")
        raise PydanticCustomError(SHOWN_VALUE, "it is no address such as https://temporal.example.com")

    @field_validator("notify_url")
    @classmethod
    def _hook_address(cls, url: str | None) -> str | None:
        if url is None or WEB_ADDRESS.fullmatch(url):
            return url
        # Such an address often holds a secret itself.
        raise PydanticCustomError(HIDDEN_VALUE, "it is no address such as https://hooks.example.com/dagwright")

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
        networks = [each.strip() for each in proxies.split(",")]
        try:
            # Strict: the server ignores a network whose address has host bits.
            for each in networks:
                ip_network(each)
        except ValueError:
            words = "each proxy is an IP address or a network, such as 10.0.0.5 or 10.0.0.0/24, with commas between"
            raise PydanticCustomError(SHOWN_VALUE, words) from None
        return ",".join(networks)

    @field_validator("notify_secret")
    @classmethod
    def _hook_secret(cls, secret: SecretStr | None, known: ValidationInfo) -> SecretStr | None:
        if secret is None and known.data.get("notify_url") is not None:
            raise PydanticCustomError(HIDDEN_VALUE, "DAGWRIGHT_NOTIFY_URL needs it: what is sent there is signed")
        if secret is not None and not signing_key(secret.get_secret_value()):
            raise PydanticCustomError(HIDDEN_VALUE, "what follows whsec_ must be base64, and there must be something")
        return secret

    @field_validator("payload_store")
    @classmethod
    def _known_store(cls, location: str) -> str:
        try:
            return str(parse_location(location))
        except LocationInvalid as error:
            raise PydanticCustomError(HIDDEN_VALUE, cast(LiteralString, error.args[0])) from error

    @field_validator("log_level", "log_format", mode="before")
    @classmethod
    def _lower(cls, text: object) -> object:
        return text.lower() if isinstance(text, str) else text

    @property
    def llm_base_url(self) -> str | None:
        """Returns the address of the model service; None is the one that the OpenAI client knows."""
        return self.openai_base_url or self.litellm_proxy_base_url

    @property
    def llm_api_key(self) -> SecretStr | None:
        """Returns the key that belongs to `llm_base_url`: no service gets the key of the other."""
        if self.openai_base_url is None and self.litellm_proxy_base_url is not None:
            return self.litellm_proxy_api_key or self.openai_api_key
        return self.openai_api_key or self.litellm_proxy_api_key

    @property
    def rounds_limits(self) -> RoundsLimits:
        """Returns what holds for a question that is answered in rounds and does not say it."""
        return RoundsLimits(self.max_rounds, self.worker_timeout_s, self.question_timeout_s, self.synthesis)

    def of_runs(self) -> dict[str, str]:
        """Returns what is set, and read now, that a run may depend on: variable -> value, secrets in clear.

        A file or folder has the same value however it is written.
        """
        start = f"{_PREFIX}SECRET_"
        found = {variable: value for variable, value in os.environ.items() if variable.startswith(start)}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value is None or name in _OF_COMMANDS:
                continue
            text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
            if name in _PLACES:
                text = _resolved(text)
            found[_variable_of(name, field)] = text
        return found

    def secret(self, name: str) -> str | None:
        """Returns the value of `DAGWRIGHT_SECRET_<name>`, read now, or None if there is no such secret.

        Args:
            name: letters, digits and underscores, as in `{{secret.NAME}}`; nothing else names a secret.
        """
        if _SECRET_NAME.fullmatch(name) is None or name.endswith((_TOOLS_OF_SECRET, _HOSTS_OF_SECRET)):
            return None
        return os.environ.get(f"{_PREFIX}SECRET_{name}")

    def temporal_files(self) -> tuple[Path, ...]:
        """Return the configuration file of Temporal's client and the TLS files that Temporal's variables name."""
        chosen = os.environ.get("TEMPORAL_CONFIG_FILE")
        folders = (os.environ.get("XDG_CONFIG_HOME") or "~/.config", "~/Library/Application Support")
        files = [chosen] if chosen else [f"{folder}/temporalio/temporal.toml" for folder in folders]
        files += filter(None, map(os.environ.get, _TEMPORAL_TLS_FILES))
        return tuple(Path(file).expanduser().absolute() for file in files)

    def secret_tools(self, name: str) -> tuple[str, ...]:
        """Return the tools, or patterns of their names, that `DAGWRIGHT_SECRET_<name>_TOOLS` binds a secret to."""
        return _listed_in(f"{_PREFIX}SECRET_{name}{_TOOLS_OF_SECRET}")

    def secret_hosts(self, name: str) -> tuple[str, ...]:
        """Return the hosts that `DAGWRIGHT_SECRET_<name>_HOSTS` binds a secret to."""
        return _listed_in(f"{_PREFIX}SECRET_{name}{_HOSTS_OF_SECRET}")

    def variable(self, name: str) -> str | None:
        """Returns what a `${name}` in a file of MCP servers stands for: the secret, else the variable of that name."""
        found = self.secret(name)
        return os.environ.get(name) if found is None else found


SettingsKind = TypeVar("SettingsKind", bound=Settings)
"""The settings of the engine, or of an application."""


def load_settings() -> Settings:
    """Reads the settings from the environment.

    Raises:
        SettingsError: a variable holds a value that its field does not take.
    """
    return _read(Settings, {})


def settings_as(kind: type[SettingsKind], settings: Settings) -> SettingsKind:
    """Return the settings with the fields of an application: its own ones are read from the environment.

    Raises:
        SettingsError: a variable holds a value that its field does not take.
    """
    if isinstance(settings, kind):
        return settings
    return _read(kind, {name: getattr(settings, name) for name in settings.model_fields_set})


def app_settings(settings: Settings) -> Iterator[Settings]:
    """Yield the settings of each installed application.

    Raises:
        SettingsError: a variable holds a value that its field does not take.
        PluginError: a plugin cannot be used.
    """
    for each in installed_plugins():
        if each.plugin.settings is not None:
            yield settings_as(each.load(each.plugin.settings), settings)


def _read(kind: type[SettingsKind], given: Mapping[str, Any]) -> SettingsKind:
    try:
        return kind(**given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "environment"
        variable = name if name.isupper() else f"{_PREFIX}{name.upper()}"
        got = "" if first["type"] == HIDDEN_VALUE else f", got {first['input']!r}"
        raise SettingsError(f"{variable} can not be used: {first['msg']}{got}") from error


def _variable_of(name: str, field: FieldInfo) -> str:
    """Return the environment variable of a field."""
    return str(field.validation_alias or f"{_PREFIX}{name.upper()}")


def _listed_in(variable: str) -> tuple[str, ...]:
    return tuple(filter(None, (each.strip() for each in os.environ.get(variable, "").split(","))))


def _in_state_dir(values: dict[str, Any], name: str, scheme: str) -> str:
    return f"{scheme}{values['state_dir'] / name}"


def _resolved(place: str) -> str:
    """Returns an absolute path, or the URL of a SQLite file, without links and `..`; another place as it is."""
    before, path, after = found.groups() if (found := _SQLITE.fullmatch(place)) else ("", place, "")
    is_path = path.startswith("/") if not before else not path.startswith("file:")
    return f"{before}{Path(path).resolve()}{after}" if is_path else place


def _wrong_database(url: str) -> LiteralString | None:
    """Returns what is wrong with a database URL, without the URL: it may hold a password.

    The driver checks the rest; this keeps what it could never open out of every command, without importing it.
    """
    scheme, sign, rest = url.partition("://")
    kind = scheme.partition("+")[0]
    if not sign or not kind:
        return "it is no URL such as sqlite:///dagwright.db"
    if kind == "sqlite":
        path, _, options = rest.partition("?")
        if path.strip("/") in ("", ":memory:") or "mode=memory" in options:
            return "a SQLite database in memory cannot be shared by workers; name a file"
        return None if path.startswith("/") else "the path of a SQLite file comes after three slashes"
    if kind not in ("postgresql", "postgres"):
        return "only SQLite and PostgreSQL are known"
    place = rest.partition("?")[0].rpartition("@")[2].partition("/")[0]
    port = _BRACKETED.sub("", place).partition(":")[2]
    return "its port is no number" if port and not port.isdecimal() else None
