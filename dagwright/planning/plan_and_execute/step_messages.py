"""Messages that describe the nodes of a plan to a model: title, state, and result, truncated if it is long."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pydantic_core

from dagwright.core.expressions.references import ResultOf, TemplatePart
from dagwright.core.expressions.stored_values import is_inline_value
from dagwright.core.model.compiled import Binding, CompiledNode
from dagwright.core.model.states import Record
from dagwright.core.text import cut_with_count
from dagwright.planning.model_calls.model_requests import Message, user

RESULT_CHARACTERS = 8_000
"""Limit per result in the messages of the answering or replanning call."""
RESULTS_CHARACTERS = 96_000
"""Limit for all results together."""
MIN_RESULT_CHARACTERS = 400
"""Smallest limit per result, however many results there are."""
MAX_REFERENCED_BYTES = 128 * 1024
"""Limit for the JSON of all results that are not in the store. In the arguments of the call, a reference to such a
result is replaced with its value."""

Step = tuple[CompiledNode, Record]


@dataclass(frozen=True, slots=True)
class StepMessages:
    """Messages that describe nodes, one per node, with the bindings that fill them when they are sent.

    Args:
        bindings: bindings at `("messages", index, "content")`.
        cuts: index of a message -> number of characters after which it is truncated.
    """

    messages: Sequence[Message]
    bindings: Sequence[Binding]
    cuts: Mapping[int, int]


def step_messages(steps: Sequence[Step], *, first_index: int) -> StepMessages:
    """Build the messages for nodes.

    Results are passed by reference, so a message shows the result that the node has when the message is sent.

    Args:
        first_index: index of the first message in the conversation.
    """
    limit = characters_per_step(steps)
    messages: list[Message] = []
    bindings: list[Binding] = []
    cuts: dict[int, int] = {}
    remaining_bytes = MAX_REFERENCED_BYTES
    for index, (node, record) in enumerate(steps, first_index):
        size = len(pydantic_core.to_json(record.result)) if is_inline_value(record.result) else 0
        if remaining_bytes >= size:
            remaining_bytes -= size
            cuts[index] = limit
            bindings.append((("messages", index, "content"), _step_parts(node)))
            messages.append(user(""))
        else:
            messages.append(user(step_text(node, record, limit=limit)))
    return StepMessages(messages, bindings, cuts)


def characters_per_step(steps: Sequence[Step]) -> int:
    """Return the character limit of the message about each step."""
    return min(RESULT_CHARACTERS, max(MIN_RESULT_CHARACTERS, RESULTS_CHARACTERS // max(1, len(steps))))


def _step_parts(node: CompiledNode) -> tuple[TemplatePart, ...]:
    """Return the template for a step: its title, state, error and result."""
    state, error, result = (ResultOf(node.id, part) for part in ("status", "error", "result"))
    return f"{_step_label(node)}: ", state, "\nError: ", error, "\nResult: ", result


def step_text(node: CompiledNode, record: Record, *, limit: int) -> str:
    """Return the text of a step with its current values, without references.

    Such a text is used for results that exceed `MAX_REFERENCED_BYTES`, and for nodes that may be replaced later.
    """
    error = pydantic_core.to_json(record.error.to_json() if record.error else None).decode()
    text = record.result if isinstance(record.result, str) else pydantic_core.to_json(record.result).decode()
    return cut_with_count(f"{_step_label(node)}: {record.status.value}\nError: {error}\nResult: {text}", limit)


def _step_label(node: CompiledNode) -> str:
    return f"Step {node.id!r}" + (f" ({node.title})" if node.title else "")
