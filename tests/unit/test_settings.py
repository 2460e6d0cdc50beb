"""Settings: what the environment says, and what is taken when it says nothing."""

from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from dagwright.settings import Settings, SettingsError, load_settings


def test_defaults_lie_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    settings = load_settings()
    assert settings.model_dump() == {
        "state_dir": tmp_path / ".dagwright",
        "database_url": f"sqlite:///{tmp_path}/.dagwright/dagwright.db",
        "payload_store": f"{tmp_path}/.dagwright/payloads",
        "ui_url": None,
        "notify_url": None,
        "notify_secret": None,
        "task_queue": "dagwright",
        "tools_queue": None,
        "files_root": tmp_path,
        "allow_private_addresses": False,
        "log_level": "info",
        "log_format": "console",
        "model": None,
        "max_rounds": 10,
        "worker_timeout_s": 60.0,
        "question_timeout_s": 3_600.0,
        "synthesis": "assemble",
        "plans": None,
        "api_keys": tmp_path / ".dagwright" / "api-keys.json",
        "api_requests": 600,
        "api_streams": 100,
        "api_runs": 100,
        "api_body_bytes": 32 * 1024 * 1024,
        "api_plan_bytes": 8 * 1024 * 1024,
        "api_hosts": None,
        "api_origins": None,
        "api_proxies": None,
        "health_address": None,
        "drain_s": None,
        "prices": None,
        "search_url": None,
        "opensearch_url": None,
        "opensearch_prefix": "maritime",
        "opensearch_max_rows": 1_000,
        "opensearch_timeout_s": 20.0,
        "serper_api_key": None,
        "serper_base_url": "https://google.serper.dev",
        "openai_api_key": None,
        "openai_base_url": None,
        "litellm_proxy_api_key": None,
        "litellm_proxy_base_url": None,
        "no_color": None,
        "cache_home": tmp_path / "home" / ".cache",
    }


@pytest.mark.parametrize(
    ("given", "used"),
    [("10.0.0.5", "10.0.0.5"), (" 10.0.0.0/24 , ::1,2001:db8::/32", "10.0.0.0/24,::1,2001:db8::/32")],
)
def test_proxies_are_addresses_and_networks(given: str, used: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGWRIGHT_API_PROXIES", given)
    assert load_settings().api_proxies == used


@pytest.mark.parametrize("given", ["*", "10.0.0.1/8", "proxy.example.com", "10.0.0.5,", "10.0.0.5;10.0.0.6", "unix:"])
def test_other_proxies_are_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGWRIGHT_API_PROXIES", given)
    words = "DAGWRIGHT_API_PROXIES can not be used: each proxy is an IP address or a network, such as 10.0.0.5 or"
    with pytest.raises(SettingsError, match=words):
        load_settings()


def test_a_model_name_that_no_call_could_carry_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGWRIGHT_MODEL", "m" * 200)
    assert load_settings().model == "m" * 200
    monkeypatch.setenv("DAGWRIGHT_MODEL", "m" * 201)
    with pytest.raises(SettingsError, match=r"DAGWRIGHT_MODEL can not be used: .*at most 200 characters"):
        load_settings()


def test_every_variable_of_the_contract_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    variables = {
        "DAGWRIGHT_STATE_DIR": "state",
        "DAGWRIGHT_DATABASE_URL": "postgresql+psycopg://localhost/parties",
        "DAGWRIGHT_PAYLOAD_STORE": "s3://bucket/prefix",
        "DAGWRIGHT_UI_URL": "https://temporal.example.com/ui/",
        "DAGWRIGHT_NOTIFY_URL": "https://hooks.example.com/dagwright?token=1",
        "DAGWRIGHT_NOTIFY_SECRET": "whsec_c2VjcmV0",
        "DAGWRIGHT_TASK_QUEUE": "other",
        "DAGWRIGHT_TOOLS_QUEUE": "shop",
        "DAGWRIGHT_FILES_ROOT": "files",
        "DAGWRIGHT_HEALTH_ADDRESS": "127.0.0.1:8485",
        "DAGWRIGHT_DRAIN_S": "90",
        "DAGWRIGHT_ALLOW_PRIVATE_ADDRESSES": "true",
        "DAGWRIGHT_LOG_LEVEL": "DEBUG",
        "DAGWRIGHT_LOG_FORMAT": "JSON",
        "DAGWRIGHT_MODEL": "some-model",
        "DAGWRIGHT_MAX_ROUNDS": "4",
        "DAGWRIGHT_WORKER_TIMEOUT_S": "90",
        "DAGWRIGHT_QUESTION_TIMEOUT_S": "600",
        "DAGWRIGHT_SYNTHESIS": "model",
        "DAGWRIGHT_PLANS": "plans",
        "DAGWRIGHT_API_KEYS": "keys.json",
        "DAGWRIGHT_API_REQUESTS": "60",
        "DAGWRIGHT_API_STREAMS": "5",
        "DAGWRIGHT_API_RUNS": "6",
        "DAGWRIGHT_API_BODY_BYTES": "2048",
        "DAGWRIGHT_API_PLAN_BYTES": "4096",
        "DAGWRIGHT_API_HOSTS": "a.example.com",
        "DAGWRIGHT_API_ORIGINS": "https://a.example.com",
        "DAGWRIGHT_API_PROXIES": "10.0.0.0/8",
        "DAGWRIGHT_PRICES": "prices.yaml",
        "DAGWRIGHT_SEARCH_URL": "http://localhost:9000",
        "DAGWRIGHT_OPENSEARCH_URL": "https://me:secret@search.example.com/",
        "DAGWRIGHT_OPENSEARCH_PREFIX": "trade-1",
        "DAGWRIGHT_OPENSEARCH_MAX_ROWS": "200",
        "DAGWRIGHT_OPENSEARCH_TIMEOUT_S": "7.5",
        "SERPER_API_KEY": "serper-key",
        "SERPER_BASE_URL": "http://localhost:9001",
        "OPENAI_API_KEY": "openai-key",
        "OPENAI_BASE_URL": "http://localhost:9002",
        "LITELLM_PROXY_API_KEY": "litellm-key",
        "LITELLM_PROXY_BASE_URL": "http://localhost:9003",
        "NO_COLOR": "1",
        "XDG_CACHE_HOME": "/var/cache/me",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert settings.serper_api_key is not None
    assert settings.serper_api_key.get_secret_value() == "serper-key"
    assert settings.model_dump(exclude={"serper_api_key", "openai_api_key", "litellm_proxy_api_key"}) == {
        "state_dir": tmp_path / "state",
        "database_url": "postgresql+psycopg://localhost/parties",
        "payload_store": "s3://bucket/prefix",
        "ui_url": "https://temporal.example.com/ui",
        "notify_url": "https://hooks.example.com/dagwright?token=1",
        "notify_secret": SecretStr("whsec_c2VjcmV0"),
        "task_queue": "other",
        "tools_queue": "shop",
        "files_root": tmp_path / "files",
        "allow_private_addresses": True,
        "log_level": "debug",
        "log_format": "json",
        "model": "some-model",
        "max_rounds": 4,
        "worker_timeout_s": 90.0,
        "question_timeout_s": 600.0,
        "synthesis": "model",
        "plans": tmp_path / "plans",
        "api_keys": tmp_path / "keys.json",
        "api_requests": 60,
        "api_streams": 5,
        "api_runs": 6,
        "api_body_bytes": 2048,
        "api_plan_bytes": 4096,
        "api_hosts": "a.example.com",
        "api_origins": "https://a.example.com",
        "api_proxies": "10.0.0.0/8",
        "health_address": "127.0.0.1:8485",
        "drain_s": 90.0,
        "prices": tmp_path / "prices.yaml",
        "search_url": "http://localhost:9000",
        "opensearch_url": "https://me:secret@search.example.com",
        "opensearch_prefix": "trade-1",
        "opensearch_max_rows": 200,
        "opensearch_timeout_s": 7.5,
        "serper_base_url": "http://localhost:9001",
        "openai_base_url": "http://localhost:9002",
        "litellm_proxy_base_url": "http://localhost:9003",
        "no_color": "1",
        "cache_home": Path("/var/cache/me"),
    }


def test_database_and_payloads_follow_the_state_folder(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path / "here")
    assert settings.database_url == f"sqlite:///{tmp_path}/here/dagwright.db"
    assert settings.payload_store == f"{tmp_path}/here/payloads"


def test_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "")
    monkeypatch.setenv("DAGWRIGHT_TASK_QUEUE", "")
    settings = load_settings()
    assert (settings.openai_api_key, settings.task_queue) == (None, "dagwright")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (None, None)),
        ({"OPENAI_API_KEY": "a"}, ("a", None)),
        ({"LITELLM_PROXY_API_KEY": "b", "LITELLM_PROXY_BASE_URL": "http://b"}, ("b", "http://b")),
        ({"OPENAI_API_KEY": "a", "LITELLM_PROXY_API_KEY": "b", "LITELLM_PROXY_BASE_URL": "http://b"}, ("b", "http://b")),
        ({"OPENAI_API_KEY": "a", "OPENAI_BASE_URL": "http://a", "LITELLM_PROXY_API_KEY": "b"}, ("a", "http://a")),
        ({"OPENAI_API_KEY": "a", "LITELLM_PROXY_BASE_URL": "http://b"}, ("a", "http://b")),
    ],
)  # fmt: skip
def test_key_goes_with_the_address_it_belongs_to(
    variables: dict[str, str], expected: tuple[str | None, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    key = settings.llm_api_key
    assert (key.get_secret_value() if key else None, settings.llm_base_url) == expected


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        (
            "DAGWRIGHT_LOG_LEVEL",
            "loud",
            "DAGWRIGHT_LOG_LEVEL can not be used: Input should be 'debug', 'info', 'warning' or 'error', got 'loud'",
        ),
        (
            "DAGWRIGHT_ALLOW_PRIVATE_ADDRESSES",
            "perhaps",
            "DAGWRIGHT_ALLOW_PRIVATE_ADDRESSES can not be used: Input should be a valid boolean, unable to interpret "
            "input, got 'perhaps'",
        ),
        (
            "DAGWRIGHT_UI_URL",
            "localhost:8233",
            "DAGWRIGHT_UI_URL can not be used: it is no address such as https://temporal.example.com, got "
            "'localhost:8233'",
        ),
        (
            "DAGWRIGHT_NOTIFY_URL",
            "hooks.example.com/hidden",
            "DAGWRIGHT_NOTIFY_URL can not be used: it is no address such as https://hooks.example.com/dagwright",
        ),
        (
            "DAGWRIGHT_NOTIFY_SECRET",
            "whsec_hidden!",
            "DAGWRIGHT_NOTIFY_SECRET can not be used: what follows whsec_ must be base64, and there must be something",
        ),
        (
            "DAGWRIGHT_OPENSEARCH_URL",
            "me:hidden@search.example.com",
            "DAGWRIGHT_OPENSEARCH_URL can not be used: it is no address such as http://127.0.0.1:9200",
        ),
        (
            "DAGWRIGHT_OPENSEARCH_PREFIX",
            "Trade*",
            "DAGWRIGHT_OPENSEARCH_PREFIX can not be used: it must be a small letter, then small letters, digits, - and "
            "_, got 'Trade*'",
        ),
    ],
)
def test_value_that_can_not_be_used_is_told_in_one_sentence(
    name: str, value: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as refusal:
        load_settings()
    assert str(refusal.value) == sentence


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("parties.db", "it is no URL such as sqlite:///parties.db"),
        ("://x", "it is no URL such as sqlite:///parties.db"),
        ("mysql://ann:hidden@host/parties", "only SQLite and PostgreSQL are known"),
        ("sqlite://", "a SQLite database in memory cannot be shared by workers; name a file"),
        ("sqlite:///:memory:", "a SQLite database in memory cannot be shared by workers; name a file"),
        ("sqlite:///file:x?mode=memory", "a SQLite database in memory cannot be shared by workers; name a file"),
        ("sqlite://parties.db", "the path of a SQLite file comes after three slashes"),
        ("postgresql://ann:hidden@host:port/parties", "its port is no number"),
    ],
)  # fmt: skip
def test_database_that_no_worker_could_open_is_told_without_its_password(
    url: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGWRIGHT_DATABASE_URL", url)
    with pytest.raises(SettingsError) as refusal:
        load_settings()
    assert str(refusal.value) == f"DAGWRIGHT_DATABASE_URL can not be used: {wrong}"


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///parties.db",
        "sqlite:////var/lib/parties.db",
        "sqlite+pysqlite:///parties.db?timeout=3",
        "postgres://host/parties",
        "postgresql+psycopg://ann:p%40ss:word@[::1]:5432/parties?connect_timeout=3",
        "postgresql:///parties?host=/var/run/postgresql",
    ],
)
def test_database_of_a_known_kind_is_taken_as_it_is(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGWRIGHT_DATABASE_URL", url)
    assert load_settings().database_url == url


@pytest.mark.parametrize(
    ("location", "wrong"),
    [
        (" ", "it is empty; name a folder or s3://bucket/prefix"),
        ("https://host/payloads", "https:// is not known; name a folder or s3://bucket/prefix"),
        ("file:///var/payloads", "file:// is not known; name a folder or s3://bucket/prefix"),
        ("s3://", "the bucket's name has 3 to 63 small letters, digits, dots and hyphens"),
        ("s3://My_Bucket/x", "the bucket's name has 3 to 63 small letters, digits, dots and hyphens"),
        ("s3://a..b/x", "the bucket's name has 3 to 63 small letters, digits, dots and hyphens"),
        ("s3://bucket/a b", "the prefix may hold letters, digits and !_.*'()/- only, and no more than 900 of them"),
        ("s3://bucket/a?x=1", "the prefix may hold letters, digits and !_.*'()/- only, and no more than 900 of them"),
        ("s3://b-" + "a" * 70, "the bucket's name has 3 to 63 small letters, digits, dots and hyphens"),
        ("s3://bucket/a//b", "the prefix has an empty part, . or .."),
        ("s3://bucket/../b", "the prefix has an empty part, . or .."),
        ("~no-such-user/payloads", "~ stands for a user who has no home folder here"),
    ],
)  # fmt: skip
def test_place_where_no_store_can_be_is_told_in_one_sentence(
    location: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGWRIGHT_PAYLOAD_STORE", location)
    with pytest.raises(SettingsError) as refusal:
        load_settings()
    assert str(refusal.value) == f"DAGWRIGHT_PAYLOAD_STORE can not be used: {wrong}"


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("large", "{folder}/large"),
        ("./large/values/", "{folder}/large/values"),
        ("~/large", "{folder}/home/large"),
        ("/var/lib/large", "/var/lib/large"),
        ("s3://bucket", "s3://bucket"),
        ("S3://bucket/", "s3://bucket"),
        ("s3://my.bucket/a/b/", "s3://my.bucket/a/b"),
    ],
)
def test_place_of_the_store_is_absolute(
    location: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DAGWRIGHT_PAYLOAD_STORE", location)
    assert load_settings().payload_store == expected.format(folder=tmp_path)


def test_secret_is_read_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings()
    assert settings.secret("CRM_TOKEN") is None
    monkeypatch.setenv("DAGWRIGHT_SECRET_CRM_TOKEN", "s3cret")
    assert settings.secret("CRM_TOKEN") == "s3cret"
    assert settings.secret("crm_token") is None


@pytest.mark.parametrize("name", ["", "A B", "A=B", "\0", "\ud800", "../X", "Ä"])
def test_what_is_no_name_names_no_secret(name: str) -> None:
    assert Settings().secret(name) is None


def test_keys_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "very-secret")
    assert "very-secret" not in repr(load_settings())


def test_settings_do_not_change() -> None:
    settings = Settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.task_queue = "other"  # type: ignore[misc]  # the plugin knows that the class is frozen


def test_hook_without_a_secret_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGWRIGHT_NOTIFY_URL", "https://hooks.example.com")
    with pytest.raises(SettingsError) as refused:
        load_settings()
    assert str(refused.value) == (
        "DAGWRIGHT_NOTIFY_SECRET can not be used: DAGWRIGHT_NOTIFY_URL needs it: what is sent there is signed"
    )


@pytest.mark.parametrize("address", ["8485", "localhost", "http://localhost:8485", "a:b", ":8485"])
def test_health_address_is_host_and_port(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGWRIGHT_HEALTH_ADDRESS", address)
    with pytest.raises(
        SettingsError, match=r"^DAGWRIGHT_HEALTH_ADDRESS can not be used: an address is written HOST:PORT"
    ):
        load_settings()
