"""Queries for runs whose calls wait for a tool."""

import pytest

from dagwright.worker.missing_tools import _queries


def test_runs_are_searched_by_the_names_of_tools() -> None:
    assert list(_queries("open", ["add", "sum"])) == [
        "open AND TemporalPauseInfo IN ('property:activityType=add', 'property:activityType=sum')"
    ]
    assert [query.count("activityType") for query in _queries("open", [f"t{n}" for n in range(70)])] == [50, 20]


@pytest.mark.parametrize("name", ["it's", 'a"b', "why?", "a\\b"])
def test_name_that_a_query_cannot_contain_is_searched_in_all_runs(name: str) -> None:
    assert list(_queries("open", ["add", name])) == ["open"]
