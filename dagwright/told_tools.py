"""What tools the workers of a queue have, told through the payload store.

Several workers may serve the queue of the workflows, each with tools of its own on a queue of theirs. A run that was
started with a plan as it was written is compiled by any of them, so each tells the others what it has. The store may
forget it at any time; then the plan is refused by a worker that lacks the tool.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import structlog
from pydantic import TypeAdapter, ValidationError

from dagwright.plan.tools import ToolDeclaration
from dagwright.store import PayloadStore, StoreUnavailable

_KEPT = timedelta(days=365)
_DECLARATION = TypeAdapter(ToolDeclaration)
_logger = structlog.get_logger(__name__)


async def tell_tools(store: PayloadStore, tools: Iterable[ToolDeclaration], *, task_queue: str) -> None:
    """Tells what tools a worker has whose workflows are on `task_queue`; a store that cannot take it is logged."""
    expires_at = datetime.now(UTC) + _KEPT
    try:
        for tool in tools:
            await store.remember(_key(tool.name, task_queue), _DECLARATION.dump_json(tool), expires_at=expires_at)
    except StoreUnavailable as error:
        _logger.warning("other workers are not told of the tools", error=str(error))


async def told_tools(store: PayloadStore, names: Iterable[str], *, task_queue: str) -> Mapping[str, ToolDeclaration]:
    """Returns those of the tools that some worker has told of; a store that cannot be asked knows none."""
    found: dict[str, ToolDeclaration] = {}
    for name in names:
        try:
            content = await store.recall(_key(name, task_queue))
            if content is not None:
                found[name] = _DECLARATION.validate_json(content)
        except (StoreUnavailable, ValidationError) as error:
            _logger.warning("what other workers have is not known", tool=name, error=str(error))
    return found


def _key(name: str, task_queue: str) -> str:
    return hashlib.sha256(json.dumps(["tool", task_queue, name]).encode()).hexdigest()
