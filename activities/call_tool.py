"""The wrapper around every Python tool: one activity for each, named like the tool.

An activity takes one JSON object, the arguments, and returns plain JSON with the attempt that made it in the
payload's metadata. The wrapper fills in secrets and stored values, hands over the idempotency key, heartbeats, says
what a failure means, and puts a large result into the payload store. This module must not import workflows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC
from typing import Any, NoReturn

import pydantic_core
import structlog
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from activities.call_headers import Redaction, given_holes, idempotency_key, known_secrets, wanted_parts
from activities.errors import failure_of, posture_of
from activities.heartbeats import Heartbeats
from activities.tool_runs import Outcome, ToolRun, run_tool
from activities.values import Values
from dagwright.contracts.limits import INLINE_VALUE_BYTES, STORED_VALUE_LIMIT_BYTES
from dagwright.contracts.wire import METADATA_ATTEMPT, METADATA_STARTED_AT, METADATA_STORED, METADATA_TOOL_VERSION
from dagwright.plan.stored import stored_to_json
from dagwright.tools import ToolRegistry, ToolSpec
from dagwright.tools.context import CallIdentity, Cancellation, Progress, ToolContext
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import InvalidArguments, ResultNotKept, ResultTooLarge
from dagwright.tools.results import json_bytes, plain_json

ToolActivity = Callable[..., Awaitable[RawValue]]


def tool_activities(registry: ToolRegistry, environment: ToolEnvironment, values: Values) -> list[ToolActivity]:
    """Returns one activity for each Python tool of `registry`, in order."""
    return [_tool_activity(spec, environment, values) for spec in registry.python_tools()]


def _tool_activity(spec: ToolSpec, environment: ToolEnvironment, values: Values) -> ToolActivity:
    # Any number of arguments: a wrong call is answered here, with a reason, and not retried for ever.
    @activity.defn(name=spec.name)
    async def call_tool(*arguments: Any) -> RawValue:
        return await _Call(spec, environment, values, info=activity.info()).answer(arguments)

    return call_tool


class _Call:
    """One attempt of one call."""

    def __init__(self, spec: ToolSpec, environment: ToolEnvironment, values: Values, *, info: activity.Info) -> None:
        self._spec = spec
        self._environment = environment
        self._values = values
        self._info = info
        self._redaction = Redaction()
        self._plain: Any = None

    async def answer(self, arguments: tuple[Any, ...]) -> RawValue:
        names = {"workflow_id": self._info.workflow_id, "node_id": self._info.activity_id}
        with structlog.contextvars.bound_contextvars(**names, attempt=self._info.attempt):
            heartbeats = Heartbeats(self._info)
            heartbeats.start()
            try:
                outcome = await self._outcome(arguments, heartbeats)
                if len(outcome.result) > INLINE_VALUE_BYTES:
                    return await _to_the_end(self._kept(outcome.result))
            finally:
                heartbeats.stop()
            if outcome.error is not None:
                self._fail(outcome.error)
            return RawValue(Payload(metadata=self._metadata(), data=outcome.result))

    async def _outcome(self, arguments: tuple[Any, ...], heartbeats: Heartbeats) -> Outcome:
        try:
            keywords = await self._keywords(arguments)
        # What goes wrong before the tool is called: the arguments, a secret, a validator of the user's own.
        except Exception as error:
            return Outcome(error=error)
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
        return await run_tool(ToolRun(self._spec, keywords, call, cancellation, encode=self._encoded))

    async def _keywords(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        if len(arguments) != 1 or not isinstance(arguments[0], dict):
            raise InvalidArguments(f"Invalid arguments: {self._spec.name!r} takes one JSON object")
        given = arguments[0]
        holes = given_holes()
        if holes:
            secrets = known_secrets(holes, self._environment.secret)
            self._redaction = Redaction(secrets.values())
            await self._values.fill(given, holes, secrets=secrets)
        return self._spec.bind(given)

    def _encoded(self, value: Any) -> bytes:
        self._plain = self._redaction.value(plain_json(value))
        encoded = json_bytes(self._plain)
        if len(encoded) > STORED_VALUE_LIMIT_BYTES:
            raise ResultTooLarge(
                f"The result of {self._spec.name!r} has {len(encoded):,} bytes as JSON, over the limit of "
                f"{STORED_VALUE_LIMIT_BYTES:,}; write it to a file and return its name"
            )
        return encoded

    async def _kept(self, encoded: bytes) -> RawValue:
        """Returns what stands for a large result, which is in the payload store then."""
        name = f"{self._info.activity_id}.result"
        try:
            told = await self._values.keep(self._plain, encoded, wanted=wanted_parts(), name=name)
        except ResultNotKept as error:
            self._fail(error)
        data = pydantic_core.to_json(stored_to_json(told))
        return RawValue(Payload(metadata={**self._metadata(), METADATA_STORED: b"1"}, data=data))

    def _fail(self, error: BaseException) -> NoReturn:
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


async def _to_the_end(work: Coroutine[Any, Any, RawValue]) -> RawValue:
    """Awaits something to its end, whoever cancels: the tool has done its work, so its result counts."""
    task = asyncio.ensure_future(work)
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
