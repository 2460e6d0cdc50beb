"""How workers reach the search server: one that is away is waited for, and the limits come from the settings."""

import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import pytest
from opensearchpy import AsyncOpenSearch

from dagwright.maritime.connection import SERVER_ATTEMPTS, Search, reach_search
from dagwright.search.asking import RETRY_AFTER, NoAnswer, ServerHangs
from dagwright.search.client import SearchClients
from dagwright.search.server import RunningSearch
from dagwright.settings import Settings
from dagwright.tools import load_tools
from dagwright.tools.errors import GiveUp, RetryLater
from dagwright.tools.testing import tool_context
from dagwright.toolset import environment_of

NOWHERE = "http://127.0.0.1:1"


@asynccontextmanager
async def reached(attempt: int = 1, **settings: Any) -> AsyncIterator[Search]:
    """Reaches the server as a worker of a process with these settings does."""
    environment = environment_of(Settings(**settings))
    try:
        with tool_context(attempt=attempt, environment=environment):
            async with reach_search() as search:
                yield search
    finally:
        await environment.kept.close()


async def test_server_that_was_never_named_or_started_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(GiveUp, match="start one with `make search-server`, or set DAGWRIGHT_OPENSEARCH_URL"):
        async with reached(state_dir=tmp_path):
            pass


async def test_server_that_has_stopped_is_one_that_may_be_there_later(tmp_path: Path) -> None:
    record = RunningSearch(address="http://127.0.0.1:1", pid=1)
    (tmp_path / "search.json").write_text(record.model_dump_json(), encoding="utf-8")
    with pytest.raises(RetryLater, match="no search server runs in") as failed:
        async with reached(state_dir=tmp_path):
            pass
    assert failed.value.after == RETRY_AFTER


async def test_tool_that_is_tried_alone_has_no_search_server() -> None:
    with tool_context(), pytest.raises(GiveUp, match="no settings of a search server"):
        async with reach_search():
            pass


async def test_limits_and_prefix_are_settings() -> None:
    settings: dict[str, Any] = {"opensearch_prefix": "other", "opensearch_max_rows": 7, "opensearch_timeout_s": 2.5}
    async with reached(opensearch_url=NOWHERE, **settings) as search:
        assert (search.indices.shipments, search.limits.rows, search.limits.timeout_s) == ("other-shipments", 7, 2.5)


async def test_calls_of_a_process_share_one_client_which_is_closed_with_it() -> None:
    closed: list[AsyncOpenSearch] = []

    class Telling(SearchClients):
        async def close(self) -> None:
            closed.extend(self._clients.values())
            await super().close()

    environment = environment_of(Settings(opensearch_url=NOWHERE))
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dagwright.maritime.connection.SearchClients", Telling)
        for _ in range(2):
            with tool_context(environment=environment):
                async with reach_search() as search:
                    found.append(search.client)
        assert (found[0] is found[1], closed) == (True, [])
        await environment.kept.close()
    assert closed == [found[0]]


async def test_server_at_another_address_has_a_client_of_its_own() -> None:
    clients = SearchClients()
    first, second = clients.client(NOWHERE), clients.client("http://127.0.0.1:2")
    assert (first is second, clients.client(NOWHERE) is first) == (False, True)
    await clients.close()


@pytest.mark.parametrize(
    ("kind", "advice"),
    [(NoAnswer, "ask for less, such as fewer groups"), (ServerHangs, "it answers nothing at all: look after it")],
)
async def test_last_attempt_says_what_would_help(kind: type[NoAnswer], advice: str) -> None:
    with pytest.raises(GiveUp, match=f"^It is slow, 3 times; {advice}"):
        async with reached(attempt=3, opensearch_url=NOWHERE):
            raise kind("It is slow")


@pytest.mark.parametrize(("attempt", "kind"), [(2, NoAnswer), (3, GiveUp)])
async def test_query_that_gets_no_answer_is_not_sent_for_ever(attempt: int, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="It is slow"):
        async with reached(attempt, opensearch_url=NOWHERE):
            raise NoAnswer("It is slow")


def test_server_may_be_away_for_more_than_a_minute_for_every_worker_that_asks_it() -> None:
    specs = load_tools(["dagwright.maritime"])
    asking = [spec.name for spec in specs if "reach_search()" in inspect.getsource(cast("FunctionType", spec.function))]
    assert len(asking) == 6
    assert asking == [spec.name for spec in specs if spec.declaration.max_attempts == SERVER_ATTEMPTS]
    assert (SERVER_ATTEMPTS - 1) * RETRY_AFTER.total_seconds() > 60
