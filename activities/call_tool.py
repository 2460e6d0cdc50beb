"""The wrapper around every Python tool: one activity for each, named like the tool.

An activity takes one JSON object, the arguments, and returns plain JSON with the attempt that made it in the
payload's metadata. The wrapper fills in secrets, hands over the idempotency key, heartbeats, and says what a
failure means. This module must not import workflows.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC
from typing import Any

import structlog
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from activities.call_headers import Redaction, fill_holes, idempotency_key
from activities.errors import failure_of, posture_of
from activities.heartbeats import Heartbeats
from activities.tool_runs import Outcome, ToolRun, run_tool
from dagwright.contracts.limits import RESULT_LIMIT_BYTES
from dagwright.contracts.wire import METADATA_ATTEMPT, METADATA_STARTED_AT, METADATA_TOOL_VERSION
from dagwright.tools import ToolRegistry, ToolSpec
from dagwright.tools.context import CallIdentity, Cancellation, Progress, ToolContext
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import InvalidArguments, ResultTooLarge
from dagwright.tools.results import json_bytes, plain_json

ToolActivity = Callable[..., Awaitable[RawValue]]


def tool_activities(registry: ToolRegistry, environment: ToolEnvironment) -> list[ToolActivity]:
    """Returns one activity for each Python tool of `registry`, in order."""
    return [_tool_activity(spec, environment) for spec in registry.python_tools()]


def _tool_activity(spec: ToolSpec, environment: ToolEnvironment) -> ToolActivity:
    # Any number of arguments: a wrong call is answered here, with a reason, and not retried for ever.
    @activity.defn(name=spec.name)
    async def call_tool(*arguments: Any) -> RawValue:
        return await _Call(spec, environment, info=activity.info()).answer(arguments)

    return call_tool


class _Call:
    """One attempt of one call."""

    def __init__(self, spec: ToolSpec, environment: ToolEnvironment, *, info: activity.Info) -> None:
        self._spec = spec
        self._environment = environment
        self._info = info
        self._redaction = Redaction()

    async def answer(self, arguments: tuple[Any, ...]) -> RawValue:
        names = {"workflow_id": self._info.workflow_id, "node_id": self._info.activity_id}
        with structlog.contextvars.bound_contextvars(**names, attempt=self._info.attempt):
            outcome = await self._outcome(arguments)
            if outcome.error is not None:
                self._fail(outcome.error)
            return RawValue(Payload(metadata=self._metadata(), data=outcome.result))

    async def _outcome(self, arguments: tuple[Any, ...]) -> Outcome:
        try:
            keywords = self._keywords(arguments)
        # What goes wrong before the tool is called: the arguments, a secret, a validator of the user's own.
        except Exception as error:
            return Outcome(error=error)
        heartbeats = Heartbeats(self._info)
        cancellation = Cancellation()
        identity = CallIdentity(
            idempotency_key=idempotency_key(self._info),
            node=self._info.activity_id,
            workflow_id=self._info.workflow_id or "",
            attempt=self._info.attempt,
            last_heartbeat=heartbeats.last_details,
        )

        def beat(details: Any, progress: Progress | None) -> None:
            heartbeats.beat(self._redaction.value(details), progress)

        call = ToolContext(identity, cancellation, beat=beat)
        run = ToolRun(self._spec, keywords, call, cancellation, encode=self._encoded)
        return await run_tool(run, heartbeats)

    def _keywords(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        if len(arguments) != 1 or not isinstance(arguments[0], dict):
            raise InvalidArguments(f"Invalid arguments: {self._spec.name!r} takes one JSON object")
        self._redaction = fill_holes(arguments[0], self._environment.secret)
        return self._spec.bind(arguments[0])

    def _encoded(self, value: Any) -> bytes:
        encoded = json_bytes(self._redaction.value(plain_json(value)))
        if len(encoded) > RESULT_LIMIT_BYTES:
            raise ResultTooLarge(
                f"The result of {self._spec.name!r} has {len(encoded):,} bytes as JSON, over the limit of "
                f"{RESULT_LIMIT_BYTES:,}; write it to a file and return its name"
            )
        return encoded

    def _fail(self, error: BaseException) -> None:
        posture = posture_of(error, self._spec.declaration.effects)
        details = {
            "attempt": self._info.attempt,
            "started_at": self._started_at(),
            "tool_version": self._spec.version,
        }
        failure = failure_of(error, posture, details=details, redaction=self._redaction)
        structlog.get_logger("activities").warning(
            "tool failed",
            tool=self._spec.name,
            code=posture.code,
            is_final=posture.is_final,
            message=failure.message,
        )
        raise failure from None

    def _metadata(self) -> dict[str, bytes]:
        return {
            "encoding": b"json/plain",
            METADATA_ATTEMPT: str(self._info.attempt).encode(),
            METADATA_STARTED_AT: self._started_at().encode(),
            METADATA_TOOL_VERSION: self._spec.version.encode(),
        }

    def _started_at(self) -> str:
        return self._info.started_time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
