"""Tool directory: tool declarations and agent cards that workers publish in the payload store.

Several workers may serve the queue of the workflows, each with different tools on a separate queue. Any of these
workers may compile a plan that a client sent uncompiled, so each worker publishes its tools for the other workers. The
store may delete entries at any time; then a worker that does not have the tool rejects the plan.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from pydantic import ValidationError

from dagwright.core.errors import PlanInvalid
from dagwright.core.model.agents import DECLARATION_ADAPTER, AgentCard, agent_cards, card_from_json
from dagwright.core.model.tools import ToolDeclaration
from dagwright.plans.preparation import unknown_tools
from dagwright.store import PayloadStore, StoreUnavailable

_ENTRY_LIFETIME = timedelta(days=365)
_logger = structlog.get_logger(__name__)


async def publish_tools(store: PayloadStore, tools: Iterable[ToolDeclaration], *, task_queue: str) -> None:
    """Publish the tools of a worker whose workflows are on `task_queue`; if the store is unavailable, log a warning."""
    expires_at = datetime.now(UTC) + _ENTRY_LIFETIME
    try:
        # Entries are written concurrently: hundreds of consecutive writes to a bucket would take many seconds, and the
        # worker accepts no work before the writes end.
        async with asyncio.TaskGroup() as group:
            for tool in tools:
                content = DECLARATION_ADAPTER.dump_json(tool)
                group.create_task(
                    store.put_cache_entry(_tool_key(tool.name, task_queue), content, expires_at=expires_at)
                )
    except* StoreUnavailable as failures:
        _logger.warning("the tools could not be published to other workers", error=str(failures.exceptions[0]))


async def find_published_tools(
    store: PayloadStore, names: Iterable[str], *, task_queue: str
) -> Mapping[str, ToolDeclaration]:
    """Return the tools in `names` that a worker has published; empty if the store is unavailable."""
    declarations: dict[str, ToolDeclaration] = {}
    for name in names:
        try:
            content = await store.get_cache_entry(_tool_key(name, task_queue))
            if content is not None:
                declarations[name] = DECLARATION_ADAPTER.validate_json(content)
        except (StoreUnavailable, ValidationError) as error:
            _logger.warning("the tools of other workers could not be read", tool=name, error=str(error))
    return declarations


async def find_tool(
    known_tools: Mapping[str, ToolDeclaration], store: PayloadStore, name: str, *, task_queue: str
) -> ToolDeclaration | None:
    """Return a tool from `known_tools`, or its published declaration; `None` if there is no such tool."""
    if name in known_tools:
        return known_tools[name]
    return (await find_published_tools(store, [name], task_queue=task_queue)).get(name)


async def published_tools_of_plan(
    plan: Any,
    known_tools: Mapping[str, ToolDeclaration],
    store: PayloadStore,
    *,
    task_queue: str,
    context: Mapping[str, Any] | None = None,
    dialect: str | None = None,
) -> Mapping[str, ToolDeclaration]:
    """Return the published declarations of the tools that a plan needs and `known_tools` lacks.

    Args:
        plan: an uncompiled plan.
        dialect: dialect of the plan; `None` detects it.
        task_queue: queue of the workflows of the other workers.

    Raises:
        PlanInvalid: the plan has problems other than unknown tools.
    """
    names = await asyncio.to_thread(unknown_tools, plan, known_tools, context=context, dialect=dialect)
    published_tools = await find_published_tools(store, names, task_queue=task_queue)
    agent_tools = [name for card in agent_cards(published_tools) for name in card.tools if name not in known_tools]
    return {**published_tools, **await find_published_tools(store, agent_tools, task_queue=task_queue)}


def has_unknown_tools(plan_invalid: PlanInvalid) -> bool:
    """Return whether a plan is invalid because of tools or agents that another worker may have."""
    return any(problem.code in ("unknown_tool", "unknown_agent") for problem in plan_invalid.problems)


async def publish_cards(store: PayloadStore, cards: Iterable[AgentCard]) -> None:
    """Publish cards for workers that have other versions of the cards; if the store is unavailable, log a warning."""
    expires_at = datetime.now(UTC) + _ENTRY_LIFETIME
    try:
        async with asyncio.TaskGroup() as group:
            for card in cards:
                content = json.dumps(card.to_json()).encode()
                group.create_task(
                    store.put_cache_entry(_card_key(card.name, card.version), content, expires_at=expires_at)
                )
    except* StoreUnavailable as failures:
        _logger.warning("the agents could not be published to other workers", error=str(failures.exceptions[0]))


async def find_published_card(store: PayloadStore, name: str, version: str) -> AgentCard | None:
    """Return a published version of an agent's card, if any.

    Raises:
        StoreUnavailable: the store does not respond.
    """
    content = await store.get_cache_entry(_card_key(name, version))
    return None if content is None else card_from_json(json.loads(content))


def _card_key(name: str, version: str) -> str:
    return hashlib.sha256(json.dumps(["card", name, version]).encode()).hexdigest()


def _tool_key(name: str, task_queue: str) -> str:
    return hashlib.sha256(json.dumps(["tool", task_queue, name]).encode()).hexdigest()
