"""Which runs a list asks the server for, and which of those it takes."""

import pytest

from dagwright.contracts import wire
from dagwright.run_lists import RunFilter

_TYPES = f"{wire.IS_RUN} AND ExecutionStatus != 'ContinuedAsNew'"


def test_query_uses_the_search_attributes() -> None:
    wanted = RunFilter(status="completed_with_failures", since=0.0, tags={"team": "blue", "who": "o'neill"})
    assert wanted.query(missing=()) == (
        f"{_TYPES} AND ExecutionStatus IN ('Completed') AND (DagwrightState = 'completed_with_failures' OR "
        "DagwrightState IN ('running', 'waiting') OR DagwrightState IS NULL) AND "
        "StartTime >= '1970-01-01T00:00:00.000Z' AND DagwrightTags = 'team=blue'"
    )


@pytest.mark.parametrize("state", ["running", "waiting"])
def test_query_of_an_open_state_finds_runs_whose_attribute_lacks_what_the_client_computes(state: str) -> None:
    assert RunFilter(status=state).query(missing=()) == (
        f"{_TYPES} AND ExecutionStatus IN ('Running') AND "
        "(DagwrightState IN ('running', 'waiting') OR DagwrightState IS NULL)"
    )


def test_query_without_search_attributes_finds_more() -> None:
    wanted = RunFilter(status="waiting", tags={"team": "blue"})
    missing = {wire.SEARCH_STATE, wire.SEARCH_TAGS}
    assert wanted.query(missing=missing) == f"{_TYPES} AND ExecutionStatus IN ('Running')"
    assert RunFilter().query(missing=()) == _TYPES


def test_tags_and_start_are_compared_with_memo_and_first_execution() -> None:
    memo = {wire.MEMO_TAGS: {"team": "blue", "env": "test"}}
    assert RunFilter(tags={"team": "blue"}).takes("r", memo)
    assert not RunFilter(tags={"team": "red"}).takes("r", memo)
    assert not RunFilter(tags={"team": "blue"}).takes("r", {})
    assert [RunFilter(since=10.0).takes("r", memo, started_at=at) for at in (9.0, 10.0)] == [False, True]
