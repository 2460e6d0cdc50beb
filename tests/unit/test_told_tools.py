"""What a worker tells the others of its tools, and how it goes on if it cannot."""

import asyncio
from datetime import datetime

from structlog.testing import capture_logs

from dagwright.plan.tools import ToolDeclaration
from dagwright.told_tools import tell_cards, tell_tools, told_card, told_tools
from tests.support.agent_bench import card_of
from tests.support.memory_store import MemoryStore

_TOOLS = [ToolDeclaration(f"tool {number}") for number in range(20)]


class _CrowdStore(MemoryStore):
    """Remembers only when all tools are on their way."""

    def __init__(self) -> None:
        super().__init__()
        self._all_are_here = asyncio.Barrier(len(_TOOLS))

    async def remember(self, key: str, content: bytes, *, expires_at: datetime) -> None:
        await self._all_are_here.wait()
        await super().remember(key, content, expires_at=expires_at)


async def test_tools_are_told_at_once() -> None:
    store = _CrowdStore()
    async with asyncio.timeout(30):
        await tell_tools(store, _TOOLS, task_queue="q")
    names = [tool.name for tool in _TOOLS]
    assert await told_tools(store, [*names, "other"], task_queue="q") == dict(zip(names, _TOOLS, strict=True))
    assert await told_tools(store, names, task_queue="another") == {}


async def test_worker_goes_on_if_the_store_cannot_be_told() -> None:
    store = MemoryStore()
    store.is_down = True
    with capture_logs() as logs:
        await tell_tools(store, _TOOLS, task_queue="q")
    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("other workers are not told of the tools", "warning")
    ]
    assert store.memories == {}


async def test_card_of_an_agent_is_found_by_its_name_and_version() -> None:
    store = MemoryStore()
    cards = [card_of("llm", prompt="One"), card_of("llm", prompt="Two")]
    await tell_cards(store, cards)
    assert [await told_card(store, "helper", card.version) for card in cards] == cards
    assert await told_card(store, "other", cards[0].version) is None
    assert await told_card(store, "helper", "0123456789ab") is None
