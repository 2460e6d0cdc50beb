"""What the run of a turn has done, in a few words: for whoever looks at its session, and for the next planner."""

import re
from collections.abc import Mapping
from typing import Any

from dagwright.core.boundary.limits import DOCUMENT_NODES
from dagwright.core.model.compiled import tool_of
from dagwright.core.model.states import NodeStatus
from dagwright.core.model.tools import Effects
from dagwright.core.scheduler.scheduler import Scheduler

_CALLS_TOLD = 12
_TEXTS_TOLD = 4
_TEXT_CHARACTERS = 80
"""A longer text is no name of anything."""
_CHANGING = (Effects.IDEMPOTENT, Effects.WRITE)
_OF_ID = re.compile(r"(?:.*[_-])?ids?|.*[a-z]Ids?")
"""Keys of what only programs are told."""
_WITHOUT_EFFECT = {"created": "was there", "removed": "was not there"}
"""Key of a result -> what is said where it is false."""


def done_words(scheduler: Scheduler) -> str | None:
    """Returns what the calls of a run have changed and not taken back, in plan order; `None` if there is nothing.

    Of each call its tool and the short texts of its result: `cbu.ensure: fund, Apex, LU`. No ids are among them.
    """
    if scheduler.plan.written_count > DOCUMENT_NODES:
        return None
    completed = [(node, record) for node, record in scheduler.shown() if record.status is NodeStatus.COMPLETED]
    undone = {node.undoes for node, _ in completed}
    told = [
        _call_words(node.tool, record.result)
        for node, record in completed
        if node.undoes is None
        and node.id not in undone
        and node.tool in scheduler.plan.tools
        and tool_of(node, scheduler.plan.tools).effects in _CHANGING
    ]
    more = f"; and {len(told) - _CALLS_TOLD:,} more" if len(told) > _CALLS_TOLD else ""
    return "; ".join(told[:_CALLS_TOLD]) + more or None


def _call_words(tool: str, result: Any) -> str:
    if not isinstance(result, Mapping):
        return tool
    texts = [
        value.strip()
        for key, value in result.items()
        if isinstance(value, str) and 0 < len(value.strip()) <= _TEXT_CHARACTERS and not _OF_ID.fullmatch(str(key))
    ]
    without = [words for key, words in _WITHOUT_EFFECT.items() if result.get(key) is False]
    told = ", ".join(list(dict.fromkeys(texts))[:_TEXTS_TOLD])
    return tool + (f": {told}" if told else "") + (f" ({without[0]})" if without else "")
