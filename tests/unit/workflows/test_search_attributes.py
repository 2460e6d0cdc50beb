"""Search attributes of a run, and the times of their updates."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from dagwright.core.boundary import wire
from dagwright.workflows import search_attributes
from dagwright.workflows.search_attributes import SearchAttributes


def _nothing() -> None:
    pass


async def test_waiting_is_published_at_once_and_others_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    entries: list[list[Any]] = []
    given = TypedSearchAttributes([SearchAttributePair(SearchAttributeKey.for_keyword(wire.SEARCH_STATE), "running")])
    fake = SimpleNamespace(
        info=lambda: SimpleNamespace(typed_search_attributes=given),
        upsert_search_attributes=lambda updates: entries.append([update.value for update in updates]),
        sleep=lambda *_, **__: asyncio.Event().wait(),
    )
    monkeypatch.setattr(search_attributes, "workflow", fake)
    attributes = SearchAttributes()
    attributes.tell("waiting", ["ann"], at=0.0, wake=_nothing)
    attributes.tell("running", [], at=6.0, wake=_nothing)
    # The plan was approved, and now a lookup asks.
    attributes.tell("waiting", ["anyone"], at=6.2, wake=_nothing)
    attributes.tell("running", [], at=6.3, wake=_nothing)
    attributes.tell("waiting", ["anyone", "bob"], at=6.4, wake=_nothing)
    attributes.rest()
    assert entries == [["waiting", ["ann"]], ["running", None], ["waiting", ["anyone"]]]
