"""The wrapper around every Python tool: one activity for each, named like the tool.

An activity takes one JSON object, the arguments, and returns plain JSON with the attempt that made it in the
payload's metadata. The wrapper fills in secrets and stored values, hands over the idempotency key, heartbeats, says
what a failure means, and puts a large result into the payload store. Where the plan or the effects of the tool allow
it, the result of an equal call stands in for the call. This module must not import workflows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pydantic_core
import structlog
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from activities.attempts import attempt_details, attempt_metadata
from activities.cached_results import CachedResult, result_key
from activities.call_headers import (
    cache_seconds,
    checked_version,
    given_answers,
    given_checkpoint,
    given_holes,
    given_model,
    idempotency_key,
    known_secrets,
    wanted_parts,
)
from activities.errors import ToolParked, failure_of, posture_of, posture_of_worker, question_of, whole_of
from activities.heartbeats import Heartbeats
from activities.model_asks import ModelAsks, failure_details
from activities.parked_calls import ParkedCalls
from activities.result_cache import Asked, ResultCache
from activities.tool_runs import Outcome, ToolRun, run_tool
from activities.values import Values
from dagwright.contracts.decoding import json_from_bytes
from dagwright.contracts.limits import INLINE_VALUE_BYTES, STORED_VALUE_LIMIT_BYTES
from dagwright.contracts.model_calls import ModelAnswer, ModelCall
from dagwright.contracts.model_failures import ModelFailure
from dagwright.contracts.wire import (
    DETAIL_SEEN,
    DETAIL_WHOLE,
    METADATA_CACHED,
    METADATA_SEEN,
    METADATA_STORED,
    METADATA_TOOL_VERSION,
)
from dagwright.llm.clients import ModelClients
from dagwright.plan.seen import seen_of_places
from dagwright.plan.stored import stored_to_json
from dagwright.plan.tools import Effects
from dagwright.tools import ToolRegistry, ToolSpec
from dagwright.tools.context import CallIdentity, Cancellation, Progress, ToolContext
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import AskPerson, InvalidArguments, InvalidResult, ResultNotKept, ResultTooLarge
from dagwright.tools.questions import Models
from dagwright.tools.redaction import Redaction
from dagwright.tools.results import encoded_json, plain_json

T = TypeVar("T")

ToolActivity = Callable[..., Awaitable[RawValue]]


def tool_activities(
    registry: ToolRegistry,
    environment: ToolEnvironment,
    *,
    values: Values,
    cache: ResultCache,
    parked: ParkedCalls | None = None,
    models: ModelClients | None = None,
) -> list[ToolActivity]:
    """Returns one activity for each Python tool of `registry`, in order.

    Args:
        parked: holds calls of parked tools back; without it no tool is parked.
        models: whom tools can ask; without it they can ask no models.
    """
    shared = [
        _Shared(spec, environment, values, cache, _code_of(spec, cache), parked, models)
        for spec in registry.python_tools()
    ]
    return [_tool_activity(each) for each in shared]


@dataclass(frozen=True, slots=True)
class _Shared:
    """What all calls of a tool share.

    Args:
        code: what stands behind the tool, as `CodeReader` tells it; `None` if its results are never used again.
    """

    spec: ToolSpec
    environment: ToolEnvironment
    values: Values
    cache: ResultCache
    code: str | None
    parked: ParkedCalls | None
    models: ModelClients | None


def _code_of(spec: ToolSpec, cache: ResultCache) -> str | None:
    can_be_used_again = spec.declaration.effects in (Effects.PURE, Effects.READ)
    return cache.codes.code_of(spec.function) if can_be_used_again else None


def _tool_activity(shared: _Shared) -> ToolActivity:
    # Any number of arguments: a wrong call is answered here, with a reason, and not retried for ever.
    @activity.defn(name=shared.spec.name)
    async def call_tool(*arguments: Any) -> RawValue:
        return await _Call(shared, activity.info()).answer(arguments)

    return call_tool


class _Call:
    """One attempt of one call."""

    def __init__(self, shared: _Shared, info: activity.Info) -> None:
        self._spec = shared.spec
        self._environment = shared.environment
        self._values = shared.values
        self._cache = shared.cache
        self._code = shared.code
        self._parked = shared.parked
        self._info = info
        self._heartbeats = Heartbeats(info)
        self._models = ModelAsks(shared.models, info, self._heartbeats)
        self._redaction = Redaction()
        self._plain: Any = None
        self._cached: CachedResult | None = None
        # Not the context itself, which knows the call: such a circle waits for the garbage collector.
        self._places: Sequence[str] = ()

    async def answer(self, arguments: tuple[Any, ...]) -> RawValue:
        self._heartbeats.start()
        try:
            outcome = await self._outcome(arguments)
            if outcome.error is not None:
                raise await _to_the_end(self._failure(outcome.error)) from None
            if len(outcome.result) > INLINE_VALUE_BYTES:
                return await _to_the_end(self._kept(outcome.result))
        finally:
            self._heartbeats.stop()
        return RawValue(Payload(metadata=self._metadata(), data=outcome.result))

    async def _outcome(self, arguments: tuple[Any, ...]) -> Outcome:
        asked = self._asked(arguments)
        if asked is None:
            return await self._called(arguments)
        outcome, self._cached = await self._cache.answer(asked, lambda: self._called(arguments))
        if outcome.error is None and self._cached is None:
            await _to_the_end(self._cache.written({asked.key}))
        return outcome

    def _asked(self, arguments: tuple[Any, ...]) -> Asked | None:
        """Returns what is asked of the cache; `None` if the call has to be made whatever was called before."""
        max_age_s = cache_seconds()
        is_pure = self._spec.declaration.effects is Effects.PURE
        is_wanted = is_pure if max_age_s is None else max_age_s > 0
        # What somebody answered is no part of the arguments.
        is_wanted = is_wanted and not given_answers()
        if not is_wanted or self._code is None or len(arguments) != 1 or not isinstance(arguments[0], dict):
            return None
        key = result_key(self._spec.name, self._code, arguments=arguments[0], holes=given_holes())
        if key is None:
            return None
        return Asked(
            key=key,
            tool=self._spec.name,
            max_age_s=max_age_s,
            is_pure=is_pure,
            workflow_id=self._info.workflow_id or "",
            node=self._info.activity_id,
        )

    async def _called(self, arguments: tuple[Any, ...]) -> Outcome:
        # A pure tool calls nobody who could fail for all.
        if self._parked is not None and self._spec.declaration.effects is not Effects.PURE:
            parked = await self._parked.hold_back(self._spec.name)
            if parked is not None:
                return Outcome(error=ToolParked(f"{self._spec.name}: {parked.words}"))
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
            last_heartbeat=self._heartbeats.last_details,
            answers=given_answers(),
            checkpoint=given_checkpoint(),
            checked_version=checked_version(),
            model=given_model(),
        )

        def beat(details: Any, progress: Progress | None) -> None:
            self._heartbeats.beat(self._redaction.value(details), progress)

        models = Models(self._ask, asyncio.get_running_loop())
        call = ToolContext(identity, cancellation, beat=beat, environment=self._environment, models=models)
        self._places = call.places
        outcome = await run_tool(ToolRun(self._spec, keywords, call, cancellation, encode=self._encoded))
        return replace(outcome, asked_model=True) if self._models.usage.calls else outcome

    async def _ask(self, call: ModelCall) -> ModelAnswer:
        messages = [each.model_copy(update={"content": self._redaction.value(each.content)}) for each in call.messages]
        return await self._models.ask(replace(call, messages=tuple(messages), config=call.config.over(given_model())))

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
        encoded = encoded_json(self._plain)
        if len(encoded) > STORED_VALUE_LIMIT_BYTES:
            raise ResultTooLarge(
                f"The result of {self._spec.name!r} has {len(encoded):,} bytes as JSON, over the limit of "
                f"{STORED_VALUE_LIMIT_BYTES:,}; write it to a file and return its name"
            )
        return encoded

    async def _kept(self, encoded: bytes) -> RawValue:
        """Returns what stands for a large result, which is in the payload store then."""
        name = f"{self._info.activity_id}.result"
        plain = self._plain if self._cached is None else await asyncio.to_thread(json_from_bytes, encoded)
        try:
            told = await self._values.keep(plain, encoded, wanted=wanted_parts(), name=name)
        except ResultNotKept as error:
            raise await self._failure(error) from None
        data = pydantic_core.to_json(stored_to_json(told))
        return RawValue(Payload(metadata={**self._metadata(), METADATA_STORED: b"1"}, data=data))

    async def _failure(self, error: BaseException) -> ApplicationError:
        """Returns the failure of the attempt; its whole text is in the payload store then, if it is long."""
        details = attempt_details(self._info, self._models.usage) | {"tool_version": self._spec.version}
        if seen := self._seen():
            details[DETAIL_SEEN] = seen
        if isinstance(error, ModelFailure):
            details |= failure_details(error)
        if isinstance(error, AskPerson):
            try:
                details |= self._redaction.value(question_of(error))
            except InvalidResult as odd:
                error = odd
        declaration = self._spec.declaration
        judge = posture_of if declaration.worker is None else posture_of_worker
        posture = judge(error, declaration.effects)
        whole = whole_of(error, self._redaction)
        ref = await self._values.keep_failure(whole) if whole is not None else None
        if ref is not None:
            details[DETAIL_WHOLE] = ref
        failure = failure_of(error, posture, details=details, redaction=self._redaction)
        structlog.get_logger("activities").warning(
            "tool failed",
            tool=self._spec.name,
            code=posture.code,
            is_final=posture.is_final,
            message=failure.message,
        )
        return failure

    def _seen(self) -> dict[str, Any]:
        """Returns what the call has read, for the lineage of its node."""
        if not self._places:
            return {}
        return seen_of_places(self._redaction.place(each) for each in self._places).told()

    def _metadata(self) -> dict[str, bytes]:
        metadata = attempt_metadata(self._info, self._models.usage)
        metadata[METADATA_TOOL_VERSION] = self._spec.version.encode()
        if self._cached is not None:
            metadata[METADATA_CACHED] = pydantic_core.to_json(self._cached.told())
        if seen := self._seen():
            metadata[METADATA_SEEN] = pydantic_core.to_json(seen)
        return metadata


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Awaits something to its end, whoever cancels: the tool has ended, so its result or its failure counts."""
    task = asyncio.ensure_future(work)
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
