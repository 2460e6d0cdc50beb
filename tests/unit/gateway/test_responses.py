"""Acts on responses: by whom they are."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dagwright.feed import RunClosed
from dagwright.gateway import Desk, responses
from dagwright.gateway.callers import Caller
from dagwright.gateway.response_items import response_id


async def test_response_is_cancelled_by_the_owner_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    async def cancel(run: str, *, message: Any) -> str:
        told.append((run, message["by"]))
        raise RunClosed(run)

    async def own(run: str) -> str:
        return run

    async def now(*_: Any) -> dict[str, Any]:
        return {}

    monkeypatch.setattr(responses, "_now", now)
    desk = SimpleNamespace(own=own, steering=SimpleNamespace(cancel=cancel), caller=Caller("ann", frozenset()))
    await responses.cancel(response_id("run-1", "plan/ask"), cast(Desk, desk))
    assert told == [("run-1", "ann")]
