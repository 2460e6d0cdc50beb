"""Conservative estimate of the tokens that a call will use."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dagwright.core.expressions.compute_budget import ComputeBudgetExceeded
from dagwright.core.expressions.paths import MissingValue, get_value
from dagwright.core.expressions.stored_values import DeferredText, StoredValue, find_value_refs
from dagwright.core.expressions.value_refs import encode, ref_for_display
from dagwright.core.model.compiled import CompiledNode
from dagwright.core.model.states import NO_USAGE, Task, usage_from_json
from dagwright.core.model.tools import MODEL_TOOL

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import RunState

BYTES_PER_TOKEN = 3
"""Assumed bytes per token: a compromise between English (about four) and other languages (two or three)."""
DEFAULT_ANSWER_TOKENS = 1_000
"""Assumed tokens of a response without `max_tokens`."""


def estimated_tokens(state: "RunState", task: Task) -> int:
    """Return the estimated tokens of a call. A tool or an agent is assumed to call a model once."""
    arguments = task.arguments
    try:
        size = len(encode(arguments, ref_for_display)[0])
    except ValueError:
        # The arguments are not JSON, so the call is rejected when it is sent.
        return 1
    for _, part in find_value_refs(arguments):
        for inner_value in part.parts if isinstance(part, DeferredText) else (part,):
            if isinstance(inner_value, StoredValue) and inner_value.shape is not None:
                size += inner_value.shape.size_bytes
    if task.node.tool != MODEL_TOOL:
        return size // BYTES_PER_TOKEN + DEFAULT_ANSWER_TOKENS
    conversation_tokens = (
        _conversation_tokens(state, task.node) if arguments.get("previous_conversation") is not None else 0
    )
    config = arguments.get("config")
    max_tokens = config.get("max_tokens") if isinstance(config, Mapping) else None
    return (
        size // BYTES_PER_TOKEN
        + conversation_tokens
        + (max_tokens if isinstance(max_tokens, int) else DEFAULT_ANSWER_TOKENS)
    )


def _conversation_tokens(state: "RunState", node: CompiledNode) -> int:
    """Return the tokens of the conversation that a node continues.

    This is the usage of its last call, which includes all earlier messages.

    The last call is a dependency of the node, or a dependency of such a dependency.
    """
    nodes = state.plan.nodes
    candidates = [
        number for dependency in node.dependencies for number in (dependency, *nodes[dependency].dependencies)
    ]
    model_call_numbers = [number for number in dict.fromkeys(candidates) if nodes[number].tool == MODEL_TOOL]
    return max((_answer_tokens(state, number) for number in model_call_numbers), default=0)


def _answer_tokens(state: "RunState", number: int) -> int:
    """Return the usage that the result of a call reports; without a report, the usage of all its attempts."""
    try:
        encoded_usage = get_value(state.records[number].result, ("usage",), name="the answer")
        return usage_from_json(encoded_usage).tokens
    except (MissingValue, ComputeBudgetExceeded, ValueError):
        return state.totals.usage.tasks.get(state.plan.nodes[number].id, NO_USAGE).tokens
