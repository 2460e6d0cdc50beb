"""Model calls as nodes of a plan: how a request becomes a node, with its time-outs and retries.

A model call is a node like any other, so all that a run does with nodes it does with these: states, requests, retries,
cancelling, carrying over. Replay: what a node is made of travels in the plan, so the numbers here may change.
"""

from collections.abc import Sequence
from dataclasses import replace

from dagwright.core.boundary import wire
from dagwright.core.model.compiled import Binding, CompiledNode, RetryRule
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.planning.model_calls.calls import ModelRequest, request_to_json
from dagwright.planning.model_calls.responses import SUMMARY_PROJECTIONS

MODEL_TIMEOUT_S = 1_200.0
"""Of one attempt: a service may be silent for ten minutes while its model thinks, and then writes for some more. A
worker that died is noticed by its heartbeats long before."""
MODEL_HEARTBEAT_S = 30.0
"""As for a `write`: a call costs money, so it must not be made twice for an outage of some seconds."""
MODEL_RETRY = RetryRule(max_attempts=8, first_delay_s=1.0, factor=2.0, max_delay_s=60.0)
"""Two minutes of a service that is down, or as much as the services ask for by `Retry-After`."""

CALL_MODEL = ToolDeclaration(wire.ACTIVITY_CALL_MODEL, Effects.READ, timeout_s=MODEL_TIMEOUT_S)
"""What a plan knows of the activity: it changes nothing, and its results are never used again."""


def model_node(
    node_id: str,
    request: ModelRequest,
    *,
    title: str | None = None,
    dependencies: Sequence[int] = (),
    bindings: Sequence[Binding] = (),
) -> CompiledNode:
    """Returns the node that asks a model; its result is an answer as `planning.model_calls.responses` reads it.

    Args:
        bindings: what is put into the request when the node starts, such as at `("messages", 1, "content")`; results
            that are large go in by reference.
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
        # Whoever may run the plan may ask the model; a policy that refuses the call refuses it all the same.
        approval="never",
        wanted=SUMMARY_PROJECTIONS,
    )
