"""How workers reach the search server: one that is away is waited for, and the limits come from the settings."""

import inspect
from pathlib import Path
from types import FunctionType
from typing import cast

import pytest

from dagwright.maritime.connection import SERVER_ATTEMPTS, reach_search
from dagwright.search.asking import RETRY_AFTER, NoAnswer
from dagwright.search.server import RunningSearch
from dagwright.tools import load_tools
from dagwright.tools.errors import GiveUp, RetryLater
from dagwright.tools.testing import tool_context


async def test_server_that_was_never_named_or_started_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGWRIGHT_STATE_DIR", str(tmp_path))
    with pytest.raises(GiveUp, match="start one with `make search-server`, or set DAGWRIGHT_OPENSEARCH_URL"):
        async with reach_search():
            pass


async def test_server_that_has_stopped_is_one_that_may_be_there_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGWRIGHT_STATE_DIR", str(tmp_path))
    record = RunningSearch(address="http://127.0.0.1:1", pid=1)
    (tmp_path / "search.json").write_text(record.model_dump_json(), encoding="utf-8")
    with pytest.raises(RetryLater, match="no search server runs in") as failed:
        async with reach_search():
            pass
    assert failed.value.after == RETRY_AFTER


async def test_limits_and_prefix_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGWRIGHT_OPENSEARCH_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("DAGWRIGHT_OPENSEARCH_PREFIX", "other")
    monkeypatch.setenv("DAGWRIGHT_OPENSEARCH_MAX_ROWS", "7")
    monkeypatch.setenv("DAGWRIGHT_OPENSEARCH_TIMEOUT_S", "2.5")
    async with reach_search() as search:
        assert (search.indices.shipments, search.limits.rows, search.limits.timeout_s) == ("other-shipments", 7, 2.5)


@pytest.mark.parametrize(("attempt", "kind"), [(2, NoAnswer), (3, GiveUp)])
async def test_query_that_gets_no_answer_is_not_sent_for_ever(
    attempt: int, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGWRIGHT_OPENSEARCH_URL", "http://127.0.0.1:1")
    with tool_context(attempt=attempt), pytest.raises(kind, match="It is slow"):
        async with reach_search():
            raise NoAnswer("It is slow")


def test_server_may_be_away_for_more_than_a_minute_for_every_worker_that_asks_it() -> None:
    specs = load_tools(["dagwright.maritime"])
    asking = [spec.name for spec in specs if "reach_search()" in inspect.getsource(cast("FunctionType", spec.function))]
    assert len(asking) == 6
    assert asking == [spec.name for spec in specs if spec.declaration.max_attempts == SERVER_ATTEMPTS]
    assert (SERVER_ATTEMPTS - 1) * RETRY_AFTER.total_seconds() > 60
