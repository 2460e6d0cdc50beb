"""Model calls as nodes of a plan, with their timeouts and retries.

A model call is an ordinary node, so states, requests, retries, cancellation and continue-as-new work as for other
nodes. Replay: the plan contains the definition of each node, so the constants here may change.
"""

from collections.abc import Sequence
from dataclasses import replace

from dagwright.core.boundary import wire
from dagwright.core.model.compiled import Binding, CompiledNode, RetryRule
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.planning.model_calls.model_requests import ModelRequest, request_to_json
from dagwright.planning.model_calls.response_summary import SUMMARY_PROJECTIONS

MODEL_TIMEOUT_S = 1_200.0
"""Timeout of one attempt: a server may be silent for ten minutes while its model thinks, and then stream for several
more. A dead worker is detected much earlier by its missing heartbeats."""
MODEL_HEARTBEAT_S = 30.0
"""As for a `write`: a call costs money, so it must not be repeated after an outage of a few seconds."""
MODEL_RETRY = RetryRule(max_attempts=8, first_delay_s=1.0, factor=2.0, max_delay_s=60.0)
"""Covers an outage of two minutes; a `Retry-After` header of the server takes precedence."""

CALL_MODEL = ToolDeclaration(wire.ACTIVITY_CALL_MODEL, Effects.READ, timeout_s=MODEL_TIMEOUT_S)
"""Declaration of the activity: it has no side effects, and its results are never cached."""


def model_node(
    node_id: str,
    request: ModelRequest,
    *,
    title: str | None = None,
    dependencies: Sequence[int] = (),
    bindings: Sequence[Binding] = (),
) -> CompiledNode:
    """Build the node of a model call; `planning.model_calls.response_summary` reads its result.

    Args:
        bindings: bindings that are filled when the node starts, such as at `("messages", 1, "content")`; large results
            are passed by reference.
    """
    labels = replace(request.call.labels, node_id=node_id)
    return CompiledNode(
        id=node_id,
        kind="tool",
        title=title,
        tool=CALL_MODEL.name,
        arguments=request_to_json(replace(request, call=replace(request.call, labels=labels))),
        bindings=tuple(bindings),
        dependencies=tuple(dependencies),
        retry=MODEL_RETRY,
        timeout_s=MODEL_TIMEOUT_S,
        heartbeat_s=MODEL_HEARTBEAT_S,
        cache_s=0.0,
        # Users who may run the plan may call the model. A policy that denies the call still applies.
        approval="never",
        projections=SUMMARY_PROJECTIONS,
    )
