"""What a model is told of the nodes of a plan: what each is for, its state, and its result, cut where it is long."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pydantic_core

from dagwright.core.boundary.text import cut_with_count
from dagwright.core.expressions.references import Part, ResultOf
from dagwright.core.expressions.stored_values import is_whole
from dagwright.core.model.compiled import Binding, CompiledNode
from dagwright.core.model.states import Record
from dagwright.planning.model_calls.calls import Message, user

RESULT_CHARACTERS = 8_000
"""Of one result that the model is told which answers, or plans again."""
RESULTS_CHARACTERS = 96_000
"""Of all of them."""
MIN_CHARACTERS = 400
REFERRED_BYTES = 128 * 1024
"""JSON of the results that the call names by reference and that are not in the store: they stand in its arguments."""

Step = tuple[CompiledNode, Record]


@dataclass(frozen=True, slots=True)
class StepMessages:
    """Messages about nodes, one for each, with what of them is put in when they are sent.

    Args:
        bindings: at `("messages", place, "content")`.
        cuts: place of a message -> characters at which it is cut.
    """

    messages: Sequence[Message]
    bindings: Sequence[Binding]
    cuts: Mapping[int, int]


def step_messages(steps: Sequence[Step], *, first: int) -> StepMessages:
    """Returns what is told of nodes: their results by reference, so that one that comes out otherwise is told so.

    Args:
        first: place of the first message among all.
    """
    limit = characters_of_each(steps)
    messages: list[Message] = []
    bindings: list[Binding] = []
    cuts: dict[int, int] = {}
    room = REFERRED_BYTES
    for place, (node, record) in enumerate(steps, first):
        size = len(pydantic_core.to_json(record.result)) if is_whole(record.result) else 0
        if room >= size:
            room -= size
            cuts[place] = limit
            bindings.append((("messages", place, "content"), _step_parts(node)))
            messages.append(user(""))
        else:
            messages.append(user(step_text(node, record, limit=limit)))
    return StepMessages(messages, bindings, cuts)


def characters_of_each(steps: Sequence[Step]) -> int:
    """Returns at how many characters what is told of each of some nodes is cut."""
    return min(RESULT_CHARACTERS, max(MIN_CHARACTERS, RESULTS_CHARACTERS // max(1, len(steps))))


def _step_parts(node: CompiledNode) -> tuple[Part, ...]:
    """Returns what is told of a step: what it is for, its state, why it has no result, and its result."""
    state, error, result = (ResultOf(node.id, part) for part in ("status", "error", "result"))
    return f"{_head(node)}: ", state, "\nError: ", error, "\nResult: ", result


def step_text(node: CompiledNode, record: Record, *, limit: int) -> str:
    """Returns the same as it stands now, such as of a node whose result is too large to be told of with all others."""
    error = pydantic_core.to_json(record.error.to_json() if record.error else None).decode()
    text = record.result if isinstance(record.result, str) else pydantic_core.to_json(record.result).decode()
    return cut_with_count(f"{_head(node)}: {record.status.value}\nError: {error}\nResult: {text}", limit)


def _head(node: CompiledNode) -> str:
    return f"Step {node.id!r}" + (f" ({node.title})" if node.title else "")
