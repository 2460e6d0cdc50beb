"""Queries for runs whose calls wait for a tool."""

import pytest

from dagwright.worker.missing_tools import _queries


def test_query_for_runs_has_up_to_50_tool_names() -> None:
    assert list(_queries("open", ["add", "sum"])) == [
        "open AND TemporalPauseInfo IN ('property:activityType=add', 'property:activityType=sum')"
    ]
    assert [query.count("activityType") for query in _queries("open", [f"t{n}" for n in range(70)])] == [50, 20]


@pytest.mark.parametrize("name", ["it's", 'a"b', "why?", "a\\b"])
def test_query_for_a_name_with_invalid_characters_includes_all_runs(name: str) -> None:
    assert list(_queries("open", ["add", name])) == ["open"]
