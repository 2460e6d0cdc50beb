"""The nine worker tools, their settings from the environment, and the helpdesk articles."""

from pathlib import Path

import pytest

from dagwright.interfaces.cli.background_settings import _settings_of_runs
from dagwright.settings import Settings, SettingsError, app_settings, load_settings, settings_as
from dagwright.toolset.toolset import load_toolset
from dagwright_maritime.index_loading import articles
from dagwright_maritime.indices import Indices
from dagwright_maritime.settings import MaritimeSettings


def test_nine_worker_tools_are_loaded_with_their_slots(tmp_path: Path) -> None:
    toolset = load_toolset(Settings(state_dir=tmp_path), ["dagwright_maritime"])
    cards = {name: tool.worker for name, tool in toolset.user_tools.declarations().items()}
    slots = {name: (card.goal_type, card.requires, card.outputs) for name, card in cards.items() if card is not None}
    # Every worker tool that accepts a query result also accepts a page of documents.
    assert {name: card.same_as for name, card in cards.items() if card is not None and card.same_as} == {
        "page_query": {"page_results": "es_results"}
    }
    assert slots == {
        "common_helpdesk": ("deliverable", (), ("answer",)),
        "metadata_lookup": ("support", (), ("metadata_results", "value_results", "analysis_result")),
        "es_query_gen": ("support", ("analysis_result", "metadata_results"), ("es_query", "ambiguity")),
        "es_query_exec": ("support", ("es_query",), ("es_results", "hit_count")),
        "page_query": ("support", ("es_query",), ("page_results", "has_more", "next_offset")),
        "clarify_question": ("deliverable", (), ("clarification_message",)),
        "explain_metadata": ("deliverable", ("metadata_results",), ("explanation",)),
        "show_results": ("deliverable", ("es_results",), ("formatted_results",)),
        "analyze_results": ("deliverable", ("es_results",), ("analysis",)),
    }


def test_articles_have_the_fields_of_their_index_and_unique_ids() -> None:
    all_articles = articles()
    fields = set(Indices("x").bodies()["x-helpdesk"]["mappings"]["properties"])
    assert len(all_articles) == 40
    assert {name for article in all_articles for name in article} == fields
    for field in ("article_id", "title"):
        assert len({article[field] for article in all_articles}) == 40
    assert [article for article in all_articles if len(article["body"]) < 100 or not article["tags"]] == []


URL, PREFIX, ROWS, TIMEOUT = (f"DAGWRIGHT_OPENSEARCH_{name}" for name in ("URL", "PREFIX", "MAX_ROWS", "TIMEOUT_S"))


def test_environment_variables_set_the_maritime_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    default_settings = settings_as(MaritimeSettings, Settings(state_dir=tmp_path))
    setting_names = MaritimeSettings.model_fields.keys() - Settings.model_fields.keys()
    assert {name: getattr(default_settings, name) for name in setting_names} == {
        "opensearch_url": None,
        "opensearch_prefix": "maritime",
        "opensearch_max_rows": 1_000,
        "opensearch_timeout_s": 20.0,
    }
    variables = {URL: "https://me:secret@search.example.com/", PREFIX: "trade-1", ROWS: "200", TIMEOUT: "7.5"}
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    settings = settings_as(MaritimeSettings, Settings(state_dir=tmp_path))
    expected = Settings(state_dir=tmp_path).model_dump() | {
        "opensearch_url": "https://me:secret@search.example.com",
        "opensearch_prefix": "trade-1",
        "opensearch_max_rows": 200,
        "opensearch_timeout_s": 7.5,
    }
    assert settings.model_dump() == expected
    assert settings_as(MaritimeSettings, settings) is settings


@pytest.mark.parametrize(
    ("variable", "value", "problem"),
    [
        (URL, "me:hidden@search.example.com", "expected an address such as http://127.0.0.1:9200"),
        (PREFIX, "Trade*", "expected a lower-case letter, then lower-case letters, digits, - and _, got 'Trade*'"),
    ],
)
def test_invalid_setting_is_reported_without_its_password(
    variable: str, value: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as error:
        list(app_settings(load_settings()))
    assert str(error.value) == f"{variable} cannot be used: {problem}"


def test_maritime_settings_are_compared_with_those_of_the_background_worker() -> None:
    assert {URL, PREFIX, "DAGWRIGHT_DATABASE_URL"} <= {*_settings_of_runs(MaritimeSettings(opensearch_url="http://a"))}
