"""The nine workers as a set: what `--tools dagwright_maritime` serves."""

from pathlib import Path

from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset


def test_nine_workers_that_fit_together_are_served(tmp_path: Path) -> None:
    toolset = load_toolset(Settings(state_dir=tmp_path), ["dagwright_maritime"])
    cards = {name: tool.worker for name, tool in toolset.own.declarations().items()}
    found = {name: (card.goal_type, card.requires, card.outputs) for name, card in cards.items() if card is not None}
    # Every worker tool that accepts a query result also accepts a page of it.
    assert {name: card.same_as for name, card in cards.items() if card is not None and card.same_as} == {
        "page_query": {"page_results": "es_results"}
    }
    assert found == {
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
