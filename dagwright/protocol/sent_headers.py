"""Headers of a tool call: name -> JSON value, sent with its arguments."""

from typing import TYPE_CHECKING, Any

import pydantic_core

from dagwright.core.boundary import wire
from dagwright.core.model.compiled import projections_to_json
from dagwright.core.model.tools import Effects, ToolDeclaration

if TYPE_CHECKING:
    from dagwright.protocol.ready_calls import ReadyCall


def headers_of_call(ready_call: "ReadyCall", *, key: str | None, tool: ToolDeclaration, model: Any) -> dict[str, bytes]:
    """Return the headers of a call.

    Args:
        key: idempotency key; `None` if the worker derives the key.
        model: model configuration of the run, if it has one.
    """
    task = ready_call.task
    headers = {} if key is None else {wire.HEADER_IDEMPOTENCY_KEY: pydantic_core.to_json(key)}
    if ready_call.bindings:
        headers[wire.HEADER_BINDINGS] = pydantic_core.to_json(ready_call.bindings)
    if task.node.projections:
        headers[wire.HEADER_PROJECTIONS] = pydantic_core.to_json(projections_to_json(task.node.projections))
    if tool.effects is Effects.WRITE and not tool.is_foreign:
        headers[wire.HEADER_ATTEMPTS] = pydantic_core.to_json(task.node.retry.max_attempts)
    if task.node.cache_s is not None:
        headers[wire.HEADER_CACHE] = pydantic_core.to_json(task.node.cache_s)
    if tool.is_pinned:
        headers[wire.HEADER_CHECKED_VERSION] = pydantic_core.to_json(tool.version)
    if model:
        headers[wire.HEADER_MODEL] = pydantic_core.to_json(model)
    if task.node.effects == Effects.IDEMPOTENT:
        headers[wire.HEADER_EFFECTS] = pydantic_core.to_json(task.node.effects)
    if task.answers:
        headers[wire.HEADER_ANSWERS] = pydantic_core.to_json(task.answers)
    return headers
