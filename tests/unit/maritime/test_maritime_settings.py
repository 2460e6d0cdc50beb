"""Settings of the search server from the environment, besides the settings of the engine."""

from pathlib import Path

import pytest

from dagwright.interfaces.cli.background_settings import _settings_of_runs
from dagwright.settings import Settings, SettingsError, app_settings, load_settings, settings_as
from dagwright_maritime.settings import MaritimeSettings

URL, PREFIX, ROWS, TIMEOUT = (f"DAGWRIGHT_OPENSEARCH_{name}" for name in ("URL", "PREFIX", "MAX_ROWS", "TIMEOUT_S"))


def test_variables_extend_the_settings_of_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = settings_as(MaritimeSettings, Settings(state_dir=tmp_path))
    own = MaritimeSettings.model_fields.keys() - Settings.model_fields.keys()
    assert {name: getattr(plain, name) for name in own} == {
        "opensearch_url": None,
        "opensearch_prefix": "maritime",
        "opensearch_max_rows": 1_000,
        "opensearch_timeout_s": 20.0,
    }
    given = {URL: "https://me:secret@search.example.com/", PREFIX: "trade-1", ROWS: "200", TIMEOUT: "7.5"}
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    read = settings_as(MaritimeSettings, Settings(state_dir=tmp_path))
    expected = Settings(state_dir=tmp_path).model_dump() | {
        "opensearch_url": "https://me:secret@search.example.com",
        "opensearch_prefix": "trade-1",
        "opensearch_max_rows": 200,
        "opensearch_timeout_s": 7.5,
    }
    assert read.model_dump() == expected
    assert settings_as(MaritimeSettings, read) is read


@pytest.mark.parametrize(
    ("variable", "value", "wrong"),
    [
        (URL, "me:hidden@search.example.com", "expected an address such as http://127.0.0.1:9200"),
        (PREFIX, "Trade*", "expected a lower-case letter, then lower-case letters, digits, - and _, got 'Trade*'"),
    ],
)
def test_password_is_not_reported(variable: str, value: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as refusal:
        list(app_settings(load_settings()))
    assert str(refusal.value) == f"{variable} can not be used: {wrong}"


def test_workers_in_the_background_must_have_the_same() -> None:
    assert {URL, PREFIX, "DAGWRIGHT_DATABASE_URL"} <= {*_settings_of_runs(MaritimeSettings(opensearch_url="http://a"))}
