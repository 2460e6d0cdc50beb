"""The wrapper around every Python tool: one activity for each, named like the tool.

An activity takes one JSON object, the arguments, and returns plain JSON with the attempt that made it in the
payload's metadata. The wrapper fills in secrets and stored values, hands over the idempotency key, heartbeats, says
what a failure means, and puts a large result into the payload store. Where the plan or the effects of the tool allow
it, the result of an equal call stands in for the call. This module must not import workflows.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pydantic_core
import structlog
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from dagwright.activities.cached_results import CachedResult, result_key
from dagwright.activities.call_headers import (
    allowed_attempts,
    attempt_details,
    attempt_metadata,
    cache_seconds,
    call_effects,
    checked_version,
    given_answers,
    given_bindings,
    given_checkpoint,
    given_model,
    given_owner,
    idempotency_key,
    known_secrets,
    wanted_parts,
)
from dagwright.activities.call_starts import CallStarts, CallStopped
from dagwright.activities.errors import (
    OutcomeUnknown,
    Posture,
    ToolPaused,
    activity_failure_of,
    posture_of,
    posture_of_worker,
    question_of,
    whole_of,
)
from dagwright.activities.heartbeats import Heartbeats
from dagwright.activities.model_asks import ModelAsks, failure_details
from dagwright.activities.paused_calls import PausedCalls
from dagwright.activities.result_cache import Asked, ResultCache
from dagwright.activities.store_waits import STORE_MARGIN_S, StoreWaits
from dagwright.activities.tool_runs import Outcome, ToolRun, run_tool
from dagwright.activities.values import Values
from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.boundary.limits import INLINE_VALUE_BYTES, STORED_VALUE_LIMIT_BYTES
from dagwright.core.boundary.wire import (
    DETAIL_FULL_TEXT,
    DETAIL_LINEAGE,
    DETAIL_UNSTORED_BYTES,
    ERROR_STORE_RETRY,
    METADATA_CACHED,
    METADATA_LINEAGE,
    METADATA_STORED,
    METADATA_TOOL_VERSION,
)
from dagwright.core.expressions.stored_values import StoredValue, stored_to_json
from dagwright.core.model.lineage import lineage_of_locations
from dagwright.core.model.tools import Effects
from dagwright.llm.clients import ModelClients
from dagwright.planning.model_calls.calls import ModelAnswer, ModelCall
from dagwright.planning.model_calls.failures import ModelFailure
from dagwright.process.drain import drain_s, writes_in_flight
from dagwright.protocol.outcomes import outcome_unknown_words
from dagwright.tools import ToolRegistry, ToolSpec
from dagwright.tools.context import CallIdentity, Cancellation, Progress, ToolContext
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import (
    AskPerson,
    InvalidArguments,
    InvalidResult,
    NotStarted,
    ResultNotKept,
    ResultTooLarge,
    ValueNotLoaded,
)
from dagwright.tools.questions import Models
from dagwright.tools.redaction import Redaction
from dagwright.tools.results import encoded_json, plain_json
from dagwright.tools.secret_bindings import hosts_of_secrets

T = TypeVar("T")

_CANCEL_WAIT_S = 2.0
"""A call whose stop was requested before it started waits this long for the cancellation to arrive."""
_INLINE_IN_OUTAGE_BYTES = 1024 * 1024
"""What the run takes as it is of the result of a `write` that cannot be stored; the server takes 2 MB at most."""

ToolActivity = Callable[..., Awaitable[RawValue]]


@dataclass(frozen=True, slots=True)
class CallGuards:
    """What is done with the server before a tool is called.

    Args:
        parked: holds calls of parked tools back; without it no tool is paused.
        starts: records that the call of a `write` began; without it nothing is recorded.
    """

    parked: PausedCalls | None = None
    starts: CallStarts | None = None


NO_GUARDS = CallGuards()


def named_tool_activities(
    registry: ToolRegistry,
    environment: ToolEnvironment,
    *,
    values: Values,
    cache: ResultCache,
    guards: CallGuards = NO_GUARDS,
    models: ModelClients | None = None,
) -> dict[str, ToolActivity]:
    """Return the activities of the Python tools of `registry` by name, with their aliases.

    Args:
        guards: what is done with the server before a tool is called.
        models: whom tools can ask; without it they can ask no models.
    """
    shared = [
        _Shared(spec, environment, values, cache, _code_of(spec, cache), guards, models)
        for spec in registry.python_tools()
    ]
    named = {each.spec.name: _tool_activity(each, each.spec.name) for each in shared}
    aliases = {alias: _tool_activity(each, alias) for each in shared for alias in each.spec.aliases}
    return {**aliases, **named}


def tool_activities(registry: ToolRegistry, environment: ToolEnvironment, **rest: Any) -> list[ToolActivity]:
    """Return one activity for each Python tool of `registry`, in order; see `named_tool_activities`."""
    named = named_tool_activities(registry, environment, **rest)
    return [named[spec.name] for spec in registry.python_tools()]


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
    guards: CallGuards
    models: ModelClients | None


def _code_of(spec: ToolSpec, cache: ResultCache) -> str | None:
    declared = spec.declaration
    can_be_used_again = declared.effects_by is not None or declared.effects in (Effects.PURE, Effects.READ)
    return cache.codes.code_of(spec.function) if can_be_used_again else None


def _tool_activity(shared: _Shared, name: str) -> ToolActivity:
    # Any number of arguments: a wrong call is answered here, with a reason, and not retried for ever.
    @activity.defn(name=name)
    async def call_tool(*arguments: Any) -> RawValue:
        effects = call_effects(shared.spec.declaration, arguments[0] if arguments else None)
        call = _Call(shared, activity.info(), effects)
        if effects is not Effects.WRITE:
            return await call.answer(arguments)
        with writes_in_flight.counted():
            return await call.answer(arguments)

    return call_tool


class _Call:
    """One attempt of one call."""

    def __init__(self, shared: _Shared, info: activity.Info, effects: Effects) -> None:
        self._effects = effects
        self._spec = shared.spec
        self._environment = shared.environment
        self._values = shared.values
        self._cache = shared.cache
        # A pinned tool runs in the version that the plan was checked with, or not at all.
        self._version = (checked_version() if shared.spec.declaration.is_pinned else None) or shared.spec.version
        self._code = shared.code
        self._parked = shared.guards.parked
        self._info = info
        self._began_s = time.monotonic()
        self._heartbeats = Heartbeats(info, starts=shared.guards.starts if effects is Effects.WRITE else None)
        self._models = ModelAsks(shared.models, info, self._heartbeats)
        self._redaction = Redaction()
        self._plain: Any = None
        self._cached: CachedResult | None = None
        self._was_called = False
        self._secret_hosts: tuple[tuple[str, ...], ...] | None = None
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
        is_pure = self._effects is Effects.PURE
        is_wanted = is_pure if max_age_s is None else max_age_s > 0
        # What somebody answered is no part of the arguments.
        is_wanted = is_wanted and not given_answers() and self._effects in (Effects.PURE, Effects.READ)
        if not is_wanted or self._code is None or len(arguments) != 1 or not isinstance(arguments[0], dict):
            return None
        # What a tool reads may differ from owner to owner; what a pure one computes does not.
        owner = None if is_pure else given_owner()
        key = result_key(self._spec.name, self._code, arguments=arguments[0], bindings=given_bindings(), owner=owner)
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
        if self._heartbeats.earlier_start is not None:
            return Outcome(error=OutcomeUnknown(outcome_unknown_words(self._spec.name)))
        # A pure tool calls nobody who could fail for all.
        if self._parked is not None and self._effects is not Effects.PURE:
            # By the name of the call, which may be an alias: `tool resume` finds held calls by it.
            parked = await self._parked.hold_back(self._info.activity_type)
            if parked is not None:
                return Outcome(error=ToolPaused(f"{self._spec.name}: {parked.message}"))
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
            owner=given_owner(),
            effects=self._effects.value,
            secret_hosts=self._secret_hosts,
        )

        def beat(details: Any, progress: Progress | None) -> None:
            self._heartbeats.beat(self._redaction.value(details), progress)

        models = Models(self._ask, asyncio.get_running_loop())
        call = ToolContext(identity, cancellation, beat=beat, environment=self._environment, models=models)
        self._places = call.places
        run = ToolRun(self._spec, keywords, call, cancellation, encode=self._encoded, drain_s=self._drain_s)
        try:
            await self._heartbeats.record_start()
        except CallStopped as stopped:
            # A cancel arrives as such; else the attempt ends here.
            await asyncio.sleep(_CANCEL_WAIT_S)
            return Outcome(error=NotStarted(f"{self._spec.name} was not called: {stopped}"))
        self._was_called = True
        outcome = await run_tool(run)
        return replace(outcome, asked_model=True) if self._models.usage.calls else outcome

    def _ends_at(self) -> float:
        """Returns when the attempt is over at the latest, by the monotonic clock."""
        timeout = self._info.start_to_close_timeout
        return float("inf") if timeout is None else self._began_s + timeout.total_seconds()

    def _may_wait_for_store(self) -> bool:
        """Return whether a result may wait for the store: another worker can repeat any call but a `write`."""
        return self._effects is Effects.WRITE or not activity.is_cancelled()

    def _drain_s(self) -> float:
        """Seconds that the call may continue while its worker stops: a `write` must not be repeated."""
        own_s = self._ends_at() - time.monotonic()
        if self._effects is not Effects.WRITE or own_s == float("inf"):
            return 0.0
        return drain_s(own_s, limit_s=self._environment.drain_limit_s)

    async def _ask(self, call: ModelCall) -> ModelAnswer:
        messages = [each.model_copy(update={"content": self._redaction.value(each.content)}) for each in call.messages]
        return await self._models.ask(replace(call, messages=tuple(messages), config=call.config.over(given_model())))

    async def _keywords(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        if len(arguments) != 1 or not isinstance(arguments[0], dict):
            raise InvalidArguments(f"Invalid arguments: {self._spec.name!r} takes one JSON object")
        given = arguments[0]
        bindings = given_bindings()
        if bindings:
            secrets = known_secrets(bindings, self._spec.declaration, self._environment)
            self._redaction = Redaction(secrets.values())
            if secrets and self._spec.declaration.sends_to_hosts:
                self._secret_hosts = hosts_of_secrets(secrets, self._environment.binding_of)
            await self._values.fill(given, bindings, secrets=secrets)
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

        def keep() -> Awaitable[StoredValue]:
            return self._values.keep(plain, encoded, wanted=wanted_parts(), name=name)

        try:
            waits = StoreWaits(self._heartbeats, Cancellation())
            stored = await waits.until(self._ends_at() - STORE_MARGIN_S, keep, is_wanted=self._may_wait_for_store)
        except ResultNotKept as error:
            if self._effects is Effects.WRITE and len(encoded) <= _INLINE_IN_OUTAGE_BYTES:
                # The call must not be repeated, so its result goes into the history although it is large.
                return RawValue(Payload(metadata=self._metadata(), data=encoded))
            raise await self._failure(error) from None
        data = pydantic_core.to_json(stored_to_json(stored))
        return RawValue(Payload(metadata={**self._metadata(), METADATA_STORED: b"1"}, data=data))

    async def _failure(self, error: BaseException) -> ApplicationError:
        """Returns the failure of the attempt; its whole text is in the payload store then, if it is long."""
        details = attempt_details(self._info, self._models.usage) | {"tool_version": self._version}
        if seen := self._seen():
            details[DETAIL_LINEAGE] = seen
        if isinstance(error, ModelFailure):
            details |= failure_details(error)
        if isinstance(error, OutcomeUnknown):
            # The attempt that only reports it has called nothing.
            details["attempt"] = self._heartbeats.earlier_start
        if isinstance(error, AskPerson):
            try:
                details |= self._redaction.value(question_of(error))
            except InvalidResult as odd:
                error = odd
        declaration = self._spec.declaration
        judge = posture_of if declaration.worker is None else posture_of_worker
        posture = judge(error, self._effects)
        if isinstance(error, ValueNotLoaded) and self._was_called and self._effects is Effects.WRITE:
            # The tool itself raised it, maybe after its change.
            posture = replace(posture, is_final=True)
        elif (unstored_bytes := self._unstored_bytes(error)) is not None and not posture.is_final:
            # The run waits for the store and makes the call again: an outage costs it no attempt.
            posture = Posture(ERROR_STORE_RETRY, is_final=True)
            details[DETAIL_UNSTORED_BYTES] = unstored_bytes
        if self._effects is Effects.WRITE and not posture.is_final:
            # An attempt that has not called the tool does not count: the server may hold it back, or repeat it.
            allowed = allowed_attempts() if self._was_called else None
            posture = replace(posture, is_final=allowed is not None and self._heartbeats.calls >= allowed)
            await self._heartbeats.record_end()
        whole = whole_of(error, self._redaction)
        ref = await self._values.keep_failure(whole) if whole is not None else None
        if ref is not None:
            details[DETAIL_FULL_TEXT] = ref
        failure = activity_failure_of(error, posture, details=details, redaction=self._redaction)
        structlog.get_logger("dagwright.activities").warning(
            "tool failed",
            tool=self._spec.name,
            code=posture.code,
            is_final=posture.is_final,
            message=failure.message,
        )
        return failure

    def _unstored_bytes(self, error: BaseException) -> int | None:
        """Return the size of the result that the store did not take, 0 if it did not give a value; else `None`."""
        if isinstance(error, ResultNotKept):
            # A tool may raise it, too, and then names no size.
            return error.size_bytes or None
        return 0 if isinstance(error, ValueNotLoaded) and not self._was_called else None

    def _seen(self) -> dict[str, Any]:
        """Returns what the call has read, for the lineage of its node."""
        if not self._places:
            return {}
        return lineage_of_locations(self._redaction.place(each) for each in self._places).to_document()

    def _metadata(self) -> dict[str, bytes]:
        metadata = attempt_metadata(self._info, self._models.usage)
        metadata[METADATA_TOOL_VERSION] = self._version.encode()
        if self._cached is not None:
            metadata[METADATA_CACHED] = pydantic_core.to_json(self._cached.told())
        if seen := self._seen():
            metadata[METADATA_LINEAGE] = pydantic_core.to_json(seen)
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
