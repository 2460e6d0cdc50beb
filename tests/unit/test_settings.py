"""Settings: environment variables and defaults."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from dagwright.settings import Settings, SettingsError, load_settings

SAME = object()
"""Marks a setting whose value equals the text of its variable."""
PATHS = {"state_dir", "files_root", "plans", "api_keys", "prices", "cache_home"}
SETTINGS: list[tuple[str, Any, str, str, Any]] = [
    ("state_dir", "{folder}/.dagwright", "DAGWRIGHT_STATE_DIR", "state", "{folder}/state"),
    (
        "database_url",
        "sqlite:///{folder}/.dagwright/dagwright.db",
        "DAGWRIGHT_DATABASE_URL",
        "postgresql://localhost/parties",
        SAME,
    ),
    ("payload_store", "{folder}/.dagwright/payloads", "DAGWRIGHT_PAYLOAD_STORE", "s3://bucket/prefix", SAME),
    ("ui_url", None, "DAGWRIGHT_UI_URL", "https://temporal.example.com/ui/", "https://temporal.example.com/ui"),
    ("notify_url", None, "DAGWRIGHT_NOTIFY_URL", "https://hooks.example.com/dagwright?token=1", SAME),
    ("notify_secret", None, "DAGWRIGHT_NOTIFY_SECRET", "whsec_c2VjcmV0", SecretStr("whsec_c2VjcmV0")),
    ("task_queue", "dagwright", "DAGWRIGHT_TASK_QUEUE", "other", SAME),
    ("tools_queue", None, "DAGWRIGHT_TOOLS_QUEUE", "shop", SAME),
    ("files_root", "{folder}", "DAGWRIGHT_FILES_ROOT", "files", "{folder}/files"),
    ("allow_private_addresses", False, "DAGWRIGHT_ALLOW_PRIVATE_ADDRESSES", "true", True),
    ("log_level", "info", "DAGWRIGHT_LOG_LEVEL", "DEBUG", "debug"),
    ("log_format", "console", "DAGWRIGHT_LOG_FORMAT", "JSON", "json"),
    ("model", None, "DAGWRIGHT_MODEL", "some-model", SAME),
    ("max_rounds", 10, "DAGWRIGHT_MAX_ROUNDS", "4", 4),
    ("worker_timeout_s", 60.0, "DAGWRIGHT_WORKER_TIMEOUT_S", "90", 90.0),
    ("question_timeout_s", 3_600.0, "DAGWRIGHT_QUESTION_TIMEOUT_S", "600", 600.0),
    ("synthesis", "assemble", "DAGWRIGHT_SYNTHESIS", "model", SAME),
    ("plans", None, "DAGWRIGHT_PLANS", "plans", "{folder}/plans"),
    ("api_keys", "{folder}/.dagwright/api-keys.json", "DAGWRIGHT_API_KEYS", "keys.json", "{folder}/keys.json"),
    ("api_requests", 600, "DAGWRIGHT_API_REQUESTS", "60", 60),
    ("api_streams", 100, "DAGWRIGHT_API_STREAMS", "5", 5),
    ("api_runs", 100, "DAGWRIGHT_API_RUNS", "6", 6),
    ("api_body_bytes", 32 * 1024 * 1024, "DAGWRIGHT_API_BODY_BYTES", "2048", 2048),
    ("api_plan_bytes", 8 * 1024 * 1024, "DAGWRIGHT_API_PLAN_BYTES", "4096", 4096),
    ("api_hosts", None, "DAGWRIGHT_API_HOSTS", "a.example.com", SAME),
    ("api_origins", None, "DAGWRIGHT_API_ORIGINS", "https://a.example.com", SAME),
    ("api_proxies", None, "DAGWRIGHT_API_PROXIES", "10.0.0.0/8", SAME),
    ("limits", "", "DAGWRIGHT_LIMITS", "tool:stock 20/s", SAME),
    ("health_address", None, "DAGWRIGHT_HEALTH_ADDRESS", "127.0.0.1:8485", SAME),
    ("drain_s", None, "DAGWRIGHT_DRAIN_S", "90", 90.0),
    ("serve", "all", "DAGWRIGHT_SERVE", "tools", SAME),
    ("workflow_slots", 8, "DAGWRIGHT_WORKFLOW_SLOTS", "4", 4),
    ("activity_slots", 100, "DAGWRIGHT_ACTIVITY_SLOTS", "7", 7),
    ("cached_runs", 1000, "DAGWRIGHT_CACHED_RUNS", "50", 50),
    ("activity_pollers", 10, "DAGWRIGHT_ACTIVITY_POLLERS", "3", 3),
    ("target_cpu", None, "DAGWRIGHT_TARGET_CPU", "0.8", 0.8),
    ("target_memory", None, "DAGWRIGHT_TARGET_MEMORY", "0.9", 0.9),
    ("prices", None, "DAGWRIGHT_PRICES", "prices.yaml", "{folder}/prices.yaml"),
    ("search_url", None, "DAGWRIGHT_SEARCH_URL", "http://localhost:9000", SAME),
    ("serper_api_key", None, "SERPER_API_KEY", "serper-key", SecretStr("serper-key")),
    ("serper_base_url", "https://google.serper.dev", "SERPER_BASE_URL", "http://localhost:9001", SAME),
    ("openai_api_key", None, "OPENAI_API_KEY", "openai-key", SecretStr("openai-key")),
    ("openai_base_url", None, "OPENAI_BASE_URL", "http://localhost:9002", SAME),
    ("litellm_proxy_api_key", None, "LITELLM_PROXY_API_KEY", "litellm-key", SecretStr("litellm-key")),
    ("litellm_proxy_base_url", None, "LITELLM_PROXY_BASE_URL", "http://localhost:9003", SAME),
    ("otel_endpoint", None, "OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318", SAME),
    ("no_color", None, "NO_COLOR", "1", SAME),
    ("cache_home", "{folder}/home/.cache", "XDG_CACHE_HOME", "/var/cache/me", SAME),
]
"""Name, default, variable, text of the variable, and parsed value of each setting."""


@pytest.mark.parametrize("is_set", [False, True])
def test_setting_has_its_default_or_the_value_of_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_set: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    expected = {}
    for name, default, variable, text, parsed_value in SETTINGS:
        if is_set:
            monkeypatch.setenv(variable, text)
        value = default if not is_set else text if parsed_value is SAME else parsed_value
        if isinstance(value, str):
            value = value.format(folder=tmp_path)
        expected[name] = Path(value) if name in PATHS and value is not None else value
    assert load_settings().model_dump() == expected


def test_proxies_are_normalized_addresses_and_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, expected in (
        ("10.0.0.5", "10.0.0.5"),
        (" 10.0.0.0/24 , ::1,2001:db8::/32", "10.0.0.0/24,::1,2001:db8::/32"),
    ):
        monkeypatch.setenv("DAGWRIGHT_API_PROXIES", text)
        assert load_settings().api_proxies == expected


def test_empty_variable_counts_as_not_set_and_default_stores_are_in_the_state_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "")
    monkeypatch.setenv("DAGWRIGHT_TASK_QUEUE", "")
    settings = load_settings()
    assert (settings.openai_api_key, settings.task_queue) == (None, "dagwright")
    settings_in_folder = Settings(state_dir=tmp_path / "here")
    folder = f"{tmp_path}/here"
    assert (settings_in_folder.database_url, settings_in_folder.payload_store) == (
        f"sqlite:///{folder}/dagwright.db",
        f"{folder}/payloads",
    )


OPENAI_KEY, LITELLM_KEY = {"OPENAI_API_KEY": "a"}, {"LITELLM_PROXY_API_KEY": "b"}
LITELLM_URL = {"LITELLM_PROXY_BASE_URL": "http://b"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (None, None)),
        (OPENAI_KEY, ("a", None)),
        (LITELLM_KEY | LITELLM_URL, ("b", "http://b")),
        (OPENAI_KEY | LITELLM_KEY | LITELLM_URL, ("b", "http://b")),
        (OPENAI_KEY | {"OPENAI_BASE_URL": "http://a"} | LITELLM_KEY, ("a", "http://a")),
        (OPENAI_KEY | LITELLM_URL, ("a", "http://b")),
    ],
)
def test_key_and_url_of_the_model_service_follow_from_the_variables(
    variables: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    key = settings.llm_api_key
    assert (key.get_secret_value() if key else None, settings.llm_base_url) == expected


IN_MEMORY_MESSAGE = "a SQLite database in memory cannot be shared by workers; name a file"
DATABASE_URL_MESSAGE = "it is not a URL such as sqlite:///dagwright.db"
BUCKET_MESSAGE = "a bucket name has 3 to 63 lower-case letters, digits, dots and hyphens"
PREFIX_MESSAGE = "the prefix may have at most 900 characters: letters, digits and !_.*'()/-"
PROXY_MESSAGE = "each proxy is an IP address or a network, such as 10.0.0.5 or 10.0.0.0/24, with commas between"
INVALID_PROXIES = ("*", "10.0.0.1/8", "proxy.example.com", "10.0.0.5,", "10.0.0.5;10.0.0.6", "unix:")
ADDRESS_MESSAGE = "an address is written HOST:PORT, such as 127.0.0.1:8485"
INVALID_ADDRESSES = ("8485", "localhost", "http://localhost:8485", "a:b", ":8485")
INVALID_VALUES = {
    "LOG_LEVEL": {"loud": "Input should be 'debug', 'info', 'warning' or 'error', got 'loud'"},
    "ALLOW_PRIVATE_ADDRESSES": {"perhaps": "Input should be a valid boolean, unable to interpret input, got 'perhaps'"},
    "UI_URL": {"localhost:8233": "it is not an address such as https://temporal.example.com, got 'localhost:8233'"},
    "NOTIFY_URL": {"hooks.example.com/hidden": "it is not an address such as https://hooks.example.com/dagwright"},
    "NOTIFY_SECRET": {"whsec_hidden!": "the part after whsec_ must be base64, and not empty"},
    "API_PROXIES": {value: f"{PROXY_MESSAGE}, got {value!r}" for value in INVALID_PROXIES},
    "HEALTH_ADDRESS": {value: f"{ADDRESS_MESSAGE}, got {value!r}" for value in INVALID_ADDRESSES},
    "DATABASE_URL": {
        "parties.db": DATABASE_URL_MESSAGE,
        "://x": DATABASE_URL_MESSAGE,
        "mysql://ann:hidden@host/parties": "only SQLite and PostgreSQL are supported",
        "sqlite://": IN_MEMORY_MESSAGE,
        "sqlite:///:memory:": IN_MEMORY_MESSAGE,
        "sqlite:///file:x?mode=memory": IN_MEMORY_MESSAGE,
        "sqlite://parties.db": "the path of a SQLite file comes after three slashes",
        "postgresql://ann:hidden@host:port/parties": "its port is not a number",
    },
    "PAYLOAD_STORE": {
        " ": "it is empty; set a folder or s3://bucket/prefix",
        "https://host/payloads": "unknown scheme https://; set a folder or s3://bucket/prefix",
        "file:///var/payloads": "unknown scheme file://; set a folder or s3://bucket/prefix",
        **dict.fromkeys(("s3://", "s3://My_Bucket/x", "s3://a..b/x", "s3://b-" + "a" * 70), BUCKET_MESSAGE),
        **dict.fromkeys(("s3://bucket/a b", "s3://bucket/a?x=1"), PREFIX_MESSAGE),
        "s3://bucket/a//b": "the prefix has an empty part, . or ..",
        "s3://bucket/../b": "the prefix has an empty part, . or ..",
        "~no-such-user/payloads": "~ refers to a user without a home folder",
    },
}


@pytest.mark.parametrize(
    ("name", "value", "message"), [(name, *row) for name, rows in INVALID_VALUES.items() for row in rows.items()]
)
def test_invalid_value_is_rejected(name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"DAGWRIGHT_{name}", value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert str(caught.value) == f"DAGWRIGHT_{name} cannot be used: {message}"


def test_webhook_without_a_secret_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGWRIGHT_NOTIFY_URL", "https://hooks.example.com")
    message = "cannot be used: it is not set, but DAGWRIGHT_NOTIFY_URL needs it to sign notifications"
    with pytest.raises(SettingsError, match=f"^DAGWRIGHT_NOTIFY_SECRET {message}$"):
        load_settings()


def test_url_of_a_supported_database_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in (
        "sqlite:////var/lib/parties.db",
        "sqlite+pysqlite:///parties.db?timeout=3",
        "postgres://host/parties",
        "postgresql+psycopg://ann:p%40ss:word@[::1]:5432/parties?connect_timeout=3",
        "postgresql:///parties?host=/var/run/postgresql",
    ):
        monkeypatch.setenv("DAGWRIGHT_DATABASE_URL", url)
        assert load_settings().database_url == url


def test_location_of_the_payload_store_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for location, expected in (
        *(("large", "{folder}/large"), ("./large/values/", "{folder}/large/values")),
        *(("~/large", "{folder}/home/large"), ("/var/lib/large", "/var/lib/large")),
        *(("S3://bucket/", "s3://bucket"), ("s3://my.bucket/a/b/", "s3://my.bucket/a/b")),
    ):
        monkeypatch.setenv("DAGWRIGHT_PAYLOAD_STORE", location)
        assert load_settings().payload_store == expected.format(folder=tmp_path)


def test_secret_is_read_from_the_environment_at_each_use(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings()
    assert settings.secret("CRM_TOKEN") is None
    monkeypatch.setenv("DAGWRIGHT_SECRET_CRM_TOKEN", "s3cret")
    assert (settings.secret("CRM_TOKEN"), settings.secret("crm_token")) == ("s3cret", None)
    assert {settings.secret(name) for name in ("", "A B", "A=B", "\0", "\ud800", "../X", "Ä")} == {None}


def test_settings_are_frozen_and_hide_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "very-secret")
    settings = load_settings()
    assert "very-secret" not in repr(settings)
    with pytest.raises(ValidationError, match="frozen"):
        settings.task_queue = "other"  # type: ignore[misc]  # mypy knows that the class is frozen
