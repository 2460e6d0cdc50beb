"""The wrapper around every Python tool: one activity per tool, with the tool's name.

An activity takes its arguments as one JSON object and returns plain JSON. The payload's metadata describes the attempt.
The wrapper fills in secrets and stored values, provides the idempotency key, sends heartbeats, classifies failures,
and puts large results into the payload store. If the plan or the effects of the tool allow it, the wrapper returns
the cached result of an equal call. This module must not import workflows.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
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
    answers_of_call,
    attempt_details,
    attempt_metadata,
    batch_failure,
    bindings_of_call,
    cache_seconds,
    call_effects,
    checked_version,
    checkpoint_of_call,
    idempotency_key,
    limited_subjects,
    model_config_of_run,
    owner_of_run,
    requested_projections,
    values_of_secrets,
)
from dagwright.activities.call_limits import UNLIMITED_ADMISSION, Admission, CallLimits
from dagwright.activities.call_starts import CallStarts, CallStopped
from dagwright.activities.deferral import Deferrals, backoff_of_counted_attempts
from dagwright.activities.detached_calls import DetachedCalls
from dagwright.activities.errors import (
    CallDeferred,
    OutcomeUnknown,
    RetryDecision,
    ToolPaused,
    activity_failure_of,
    full_failure_text,
    request_details,
    retry_decision,
    worker_tool_retry_decision,
)
from dagwright.activities.heartbeats import Heartbeats
from dagwright.activities.model_caller import ModelCaller, failure_details
from dagwright.activities.paused_calls import PausedCalls
from dagwright.activities.result_cache import CacheLookup, ResultCache
from dagwright.activities.service_waits import RequestedWait, deferral_of, requested_wait
from dagwright.activities.store_retry import STORE_MARGIN_S, StoreRetry
from dagwright.activities.tool_runs import Outcome, ToolRun, run_tool
from dagwright.activities.values import LargeValues
from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.boundary.limits import MAX_INLINE_VALUE_BYTES, STORED_VALUE_LIMIT_BYTES
from dagwright.core.boundary.wire import (
    DETAIL_DEFERRED,
    DETAIL_FULL_TEXT,
    DETAIL_LINEAGE,
    DETAIL_UNSTORED_BYTES,
    ERROR_DEFERRED,
    ERROR_RATE_LIMITED,
    ERROR_STORE_RETRY,
    METADATA_CACHED,
    METADATA_LINEAGE,
    METADATA_STORED,
)
from dagwright.core.expressions.stored_values import StoredValue, stored_to_json
from dagwright.core.model.call_limits import Subject, subject_at_host
from dagwright.core.model.tools import Effects
from dagwright.features.call_limits.limit_state import RequestKind
from dagwright.llm.client import ModelClients
from dagwright.planning.model_calls.model_failure import ModelFailure
from dagwright.planning.model_calls.model_requests import ModelCall, ModelResponse
from dagwright.process.drain import drain_s, writes_in_flight
from dagwright.protocol.lineage import lineage_of_locations
from dagwright.protocol.outcomes import outcome_unknown_message
from dagwright.tools import ToolRegistry, ToolSpec
from dagwright.tools.context import CallIdentity, Cancellation, ModelAccess, Progress, ToolContext
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import (
    ArgumentNotLoaded,
    AskPerson,
    InvalidArguments,
    InvalidResult,
    NotStarted,
    ResultNotStored,
    ResultTooLarge,
)
from dagwright.tools.redaction import Redaction
from dagwright.tools.result_json import encode_plain_json, plain_json
from dagwright.tools.secret_bindings import hosts_of_secrets

T = TypeVar("T")

_URL_ARGUMENT = "url"
_DEFERRAL_CODES = (ERROR_DEFERRED, ERROR_RATE_LIMITED)
_CANCEL_WAIT_S = 2.0
"""How long a call that was stopped before its start waits for the cancellation to arrive."""
_INLINE_IN_OUTAGE_BYTES = 1024 * 1024
"""Size limit for inlining a `write` result that cannot be stored; the server accepts at most 2 MB."""

ToolActivity = Callable[..., Awaitable[RawValue]]


@dataclass(frozen=True, slots=True)
class CallGuards:
    """Everything that can prevent, delay or replace a tool call.

    Args:
        paused_calls: pauses calls of paused tools; `None` if tools cannot be paused.
        starts: records the starts of `write` calls; `None` to record nothing.
        detached_calls: slow calls that left their batch, each of which its activity continues; `None` if the worker
            runs no batches.
        deferrals: records deferred attempts, which do not count; `None` if every attempt counts.
        limits: limits of calls across all runs; `None` if calls have no limits.
    """

    paused_calls: PausedCalls | None = None
    starts: CallStarts | None = None
    detached_calls: DetachedCalls | None = None
    deferrals: Deferrals | None = None
    limits: CallLimits | None = None


NO_GUARDS = CallGuards()


def callable_tools(
    registry: ToolRegistry,
    environment: ToolEnvironment,
    *,
    values: LargeValues,
    cache: ResultCache,
    guards: CallGuards = NO_GUARDS,
    models: ModelClients | None = None,
) -> dict[str, "CallableTool"]:
    """Return the Python tools of `registry`, by name and alias, with everything that their calls need.

    Args:
        guards: checks before a tool is called.
        models: clients for tools that call models; `None` if tools cannot call models.
    """
    tools = [
        CallableTool(spec, environment, values, cache, _fingerprint_of(spec, cache), guards, models)
        for spec in registry.python_tools()
    ]
    aliases = {alias: tool for tool in tools for alias in tool.spec.aliases}
    return {**aliases, **{tool.spec.name: tool for tool in tools}}


def activities_of_tools(tools: Mapping[str, "CallableTool"]) -> dict[str, ToolActivity]:
    """Return the activity of each tool, by name and alias."""
    return {name: _tool_activity(tool, name) for name, tool in tools.items()}


@dataclass(frozen=True, slots=True)
class CallableTool:
    """A tool with everything that its calls share.

    Args:
        fingerprint: fingerprint of the tool's code from `CodeFingerprinter`; `None` if the tool's results are never
            cached.
    """

    spec: ToolSpec
    environment: ToolEnvironment
    values: LargeValues
    cache: ResultCache
    fingerprint: str | None
    guards: CallGuards
    models: ModelClients | None


def _fingerprint_of(spec: ToolSpec, cache: ResultCache) -> str | None:
    declaration = spec.declaration
    is_cacheable = declaration.effects_by is not None or declaration.effects in (Effects.PURE, Effects.READ)
    return cache.fingerprints.fingerprint(spec.function) if is_cacheable else None


def _tool_activity(tool: CallableTool, name: str) -> ToolActivity:
    # The activity accepts any number of arguments, so that a malformed call fails here with a reason instead of being
    # retried forever.
    @activity.defn(name=name)
    async def call_tool(*arguments: Any) -> RawValue:
        info = activity.info()
        if info.attempt == 1 and (failure := batch_failure()) is not None:
            await _record_deferral(failure, tool.guards.deferrals)
            raise failure
        if (
            tool.guards.detached_calls is not None
            and (running_call := tool.guards.detached_calls.pop(info)) is not None
        ):
            try:
                return await running_call.adopt()
            except ApplicationError as failure:
                await _record_deferral(failure, tool.guards.deferrals)
                raise
        effects = call_effects(tool.spec.declaration, arguments[0] if arguments else None)
        attempt = ToolAttempt(tool, info, effects)
        if effects is not Effects.WRITE:
            return await attempt.run(arguments)
        with writes_in_flight.counting_call():
            return await attempt.run(arguments)

    return call_tool


async def _record_deferral(failure: BaseException, deferrals: Deferrals | None) -> None:
    """Record the deferral of an attempt that was made in a batch: the batch cannot record the deferral for the call."""
    if deferrals is not None and isinstance(failure, ApplicationError) and failure.type in _DEFERRAL_CODES:
        details = failure.details[0] if failure.details else None
        state = details.get(DETAIL_DEFERRED) if isinstance(details, Mapping) else None
        deferral = CallDeferred(failure.message, failure.next_retry_delay or timedelta(0), state=state)
        await deferrals.record(deferral, Heartbeats(activity.info()))


class ToolAttempt:
    """One attempt of one call.

    Args:
        info: information about the activity; in a batch, with the ID, the attempt and the timeout of the call.
        heartbeats: heartbeats of a call in a batch; `None` for a call with a separate activity. In a batch, the batch
            itself checks whether the tool is paused, because the server cannot pause a single call of a batch.
    """

    def __init__(
        self,
        tool: CallableTool,
        info: activity.Info,
        effects: Effects,
        *,
        heartbeats: Heartbeats | None = None,
    ) -> None:
        self._effects = effects
        self._spec = tool.spec
        self._environment = tool.environment
        self._values = tool.values
        self._cache = tool.cache
        # A pinned tool runs in the version that the plan was checked against, or not at all.
        self._version = (checked_version() if tool.spec.declaration.is_pinned else None) or tool.spec.version
        self._fingerprint = tool.fingerprint
        self._paused_calls = tool.guards.paused_calls if heartbeats is None else None
        self._started_at = time.monotonic()
        starts = tool.guards.starts if effects is Effects.WRITE else None
        self._deferrals = tool.guards.deferrals
        self._is_in_batch = heartbeats is not None
        self._limits = None if self._is_in_batch else tool.guards.limits
        self._hold_limits = tool.guards.limits
        """Limits for holds, which also apply in a batch."""
        self._subject_at_host: Subject | None = None
        """The tool at the host that the call is for, if the tool takes a URL."""
        self._heartbeats = heartbeats or Heartbeats(info, starts=starts)
        self._info = info if heartbeats is not None else self._heartbeats.info
        self._models = ModelCaller(tool.models, self._info, self._heartbeats, limits=tool.guards.limits)
        self._redaction = Redaction()
        self._plain_result: Any = None
        self._cached_result: CachedResult | None = None
        self._was_called = False
        self._secret_hosts: tuple[tuple[str, ...], ...] | None = None
        # Store the locations instead of the context of the call: the context refers to this attempt, and only the
        # garbage collector could free such a cycle.
        self._read_locations: Sequence[str] = ()

    async def run(self, arguments: tuple[Any, ...]) -> RawValue:
        self._heartbeats.start()
        try:
            outcome = await self._use_cache_or_call_tool(arguments)
            if outcome.error is not None:
                raise await _await_to_end(self._failure(outcome.error)) from None
            if len(outcome.result) > MAX_INLINE_VALUE_BYTES:
                return await _await_to_end(self._store_result(outcome.result))
        finally:
            self._heartbeats.stop()
        return RawValue(Payload(metadata=self._metadata(), data=outcome.result))

    async def _use_cache_or_call_tool(self, arguments: tuple[Any, ...]) -> Outcome:
        lookup = self._cache_lookup(arguments)
        if lookup is None:
            return await self._call_tool(arguments)
        outcome, self._cached_result = await self._cache.get_or_call(lookup, lambda: self._call_tool(arguments))
        if outcome.error is None and self._cached_result is None:
            await _await_to_end(self._cache.flush({lookup.key}))
        return outcome

    def _cache_lookup(self, arguments: tuple[Any, ...]) -> CacheLookup | None:
        """Return the cache lookup for the call; `None` if its result must not come from the cache."""
        max_age_s = cache_seconds()
        is_pure = self._effects is Effects.PURE
        uses_cache = is_pure if max_age_s is None else max_age_s > 0
        # The cache key does not include people's answers.
        uses_cache = uses_cache and not answers_of_call() and self._effects in (Effects.PURE, Effects.READ)
        if not uses_cache or self._fingerprint is None or len(arguments) != 1 or not isinstance(arguments[0], dict):
            return None
        # The result of a read may differ between owners; the result of a pure tool does not.
        owner = None if is_pure else owner_of_run()
        key = result_key(
            self._spec.name, self._fingerprint, arguments=arguments[0], bindings=bindings_of_call(), owner=owner
        )
        if key is None:
            return None
        return CacheLookup(
            key=key,
            tool=self._spec.name,
            max_age_s=max_age_s,
            is_pure=is_pure,
            run_id=self._info.workflow_id or "",
            task_id=self._info.activity_id,
        )

    async def _call_tool(self, arguments: tuple[Any, ...]) -> Outcome:
        if self._heartbeats.earlier_started_attempt is not None:
            return Outcome(error=OutcomeUnknown(outcome_unknown_message(self._spec.name)))
        # Pure tools call no service, so they are never paused.
        if self._paused_calls is not None and self._effects is not Effects.PURE:
            # Use the name in the call, which may be an alias: `tool resume` finds paused calls by this name.
            tool_pause = await self._paused_calls.pause_if_tool_is_paused(self._info.activity_type)
            if tool_pause is not None:
                return Outcome(error=ToolPaused(f"{self._spec.name}: {tool_pause.message}"))
        try:
            admission = await self._admit()
        except CallDeferred as deferral:
            return Outcome(error=deferral)
        try:
            return await self._admit_host_and_call(arguments)
        finally:
            admission.release()

    async def _admit(self) -> Admission:
        """Wait for the limits of the call. Pure tools have no limits, and limited calls are not made in batches."""
        if self._limits is None or self._effects is Effects.PURE:
            return UNLIMITED_ADMISSION
        kind: RequestKind = "call_with_models" if self._spec.declaration.uses_models else "call"
        return await self._limits.admit(limited_subjects(self._spec.name), self._info, self._heartbeats, kind=kind)

    async def _admit_host(self, url: Any) -> None:
        """If the tool's calls to the host of `url` are held, wait for the end of the hold.

        Raises:
            CallDeferred: the call must not start now.
        """
        if self._hold_limits is not None and isinstance(url, str) and self._effects is not Effects.PURE:
            self._subject_at_host = subject_at_host("tool", self._spec.name, url)
            if self._subject_at_host is not None:
                await self._hold_limits.admit([self._subject_at_host], self._info, self._heartbeats)

    async def _admit_host_and_call(self, arguments: tuple[Any, ...]) -> Outcome:
        try:
            keywords = await self._prepare_keywords(arguments)
            await self._admit_host(keywords.get(_URL_ARGUMENT))
        # The tool was not called: the error comes from an argument, a secret, a validator of the user, or a hold.
        except Exception as error:
            return Outcome(error=error)
        cancellation = Cancellation()
        identity = CallIdentity(
            idempotency_key=idempotency_key(self._info),
            node_id=self._info.activity_id,
            run_id=self._info.workflow_id or "",
            attempt=self._info.attempt,
            last_heartbeat=self._heartbeats.last_details,
            answers=answers_of_call(),
            checkpoint=checkpoint_of_call(),
            checked_version=checked_version(),
            model=model_config_of_run(),
            owner=owner_of_run(),
            effects=self._effects.value,
            secret_hosts=self._secret_hosts,
        )

        def beat(details: Any, progress: Progress | None) -> None:
            self._heartbeats.beat(self._redaction.redact_value(details), progress)

        models = ModelAccess(self._call_model, asyncio.get_running_loop())
        call = ToolContext(identity, cancellation, send_heartbeat=beat, environment=self._environment, models=models)
        self._read_locations = call.read_locations
        run = ToolRun(self._spec, keywords, call, cancellation, encode=self._encode_result, drain_s=self._drain_s)
        try:
            await self._heartbeats.record_start()
        except CallStopped as stop:
            # If the call was cancelled, the cancellation interrupts this sleep. Otherwise the attempt fails here.
            await asyncio.sleep(_CANCEL_WAIT_S)
            return Outcome(error=NotStarted(f"{self._spec.name} was not called: {stop}"))
        self._was_called = True
        outcome = await run_tool(run)
        return replace(outcome, used_model=True) if self._models.usage.calls else outcome

    def _ends_at(self) -> float:
        """Return the latest end of the attempt on the monotonic clock."""
        timeout = self._info.start_to_close_timeout
        return float("inf") if timeout is None else self._started_at + timeout.total_seconds()

    def _may_wait_for_store(self) -> bool:
        """Return whether a result may wait for the store. If the worker stops, only results of `write` calls wait."""
        return self._effects is Effects.WRITE or not activity.is_cancelled()

    def _drain_s(self) -> float:
        """Return how long a call may continue while its worker stops; 0 if the call can be repeated."""
        remaining_s = self._ends_at() - time.monotonic()
        if self._effects is not Effects.WRITE or remaining_s == float("inf"):
            return 0.0
        return drain_s(remaining_s, limit_s=self._environment.drain_limit_s)

    async def _call_model(self, call: ModelCall) -> ModelResponse:
        messages = [
            message.model_copy(update={"content": self._redaction.redact_value(message.content)})
            for message in call.messages
        ]
        return await self._models.call(
            replace(call, messages=tuple(messages), config=call.config.with_defaults(model_config_of_run()))
        )

    async def _prepare_keywords(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        if len(arguments) != 1 or not isinstance(arguments[0], dict):
            raise InvalidArguments(f"Invalid arguments: {self._spec.name!r} takes one JSON object")
        keywords = arguments[0]
        bindings = bindings_of_call()
        if bindings:
            secrets = values_of_secrets(bindings, self._spec.declaration, self._environment)
            self._redaction = Redaction(secrets.values())
            if secrets and self._spec.declaration.sends_to_hosts:
                self._secret_hosts = hosts_of_secrets(secrets, self._environment.binding_of)
            await self._values.hydrate(keywords, bindings, secrets=secrets)
        return self._spec.bind(keywords)

    def _encode_result(self, value: Any) -> bytes:
        self._plain_result = self._redaction.redact_value(plain_json(value))
        encoded = encode_plain_json(self._plain_result)
        if len(encoded) > STORED_VALUE_LIMIT_BYTES:
            raise ResultTooLarge(
                f"The result of {self._spec.name!r} has {len(encoded):,} bytes as JSON, over the limit of "
                f"{STORED_VALUE_LIMIT_BYTES:,}; write it to a file and return its name"
            )
        return encoded

    async def _store_result(self, encoded: bytes) -> RawValue:
        """Put a large result into the payload store and return its reference."""
        name = f"{self._info.activity_id}.result"
        plain = self._plain_result if self._cached_result is None else await asyncio.to_thread(json_from_bytes, encoded)

        def store() -> Awaitable[StoredValue]:
            return self._values.store_result(plain, encoded, projections=requested_projections(), name=name)

        try:
            store_retry = StoreRetry(self._heartbeats, Cancellation())
            stored_value = await store_retry.retry_until(
                self._ends_at() - STORE_MARGIN_S, store, should_continue=self._may_wait_for_store
            )
        except ResultNotStored as error:
            if self._effects is Effects.WRITE and len(encoded) <= _INLINE_IN_OUTAGE_BYTES:
                # The call must not be repeated, so the history stores its result although the result is large.
                return RawValue(Payload(metadata=self._metadata(), data=encoded))
            raise await self._failure(error) from None
        data = pydantic_core.to_json(stored_to_json(stored_value))
        return RawValue(Payload(metadata={**self._metadata(), METADATA_STORED: b"1"}, data=data))

    async def _deferral_or_error(
        self, error: BaseException, decision: RetryDecision
    ) -> tuple[BaseException, RetryDecision]:
        """Return the deferral of the attempt if a service or model asked to wait, unless the total wait is too long."""
        if isinstance(error, CallDeferred) and self._was_called and self._effects is Effects.WRITE:
            # A model call inside the tool must wait, and the tool may already have made a change.
            return error, replace(decision, is_final=True)
        wait = requested_wait(error)
        if wait is None or decision.is_final or self._deferrals is None:
            return error, decision
        subject = self._subject_of_hold(error, wait)
        if self._hold_limits is not None and subject is not None:
            await self._hold_limits.hold(subject, wait)
        state, name = self._heartbeats.deferred_state, self._spec.name
        deferral = deferral_of(wait, name=name, earlier_state=state, now_s=time.time())
        return (error, decision) if deferral is None else (deferral, retry_decision(deferral, self._effects))

    def _subject_of_hold(self, error: BaseException, wait: RequestedWait) -> Subject | None:
        """Return the subject whose other calls wait too; `None` if only the call itself waits.

        A tool that takes a URL is held only for the URL's host, and only if that host requested the wait: a service
        must not stop calls to other services. A model is held by `ModelCaller`.
        """
        if isinstance(error, ModelFailure):
            return None
        if self._subject_at_host is None:
            return Subject("tool", self._spec.name)
        return self._subject_at_host if self._subject_at_host.name.endswith(f"@{wait.host}") else None

    async def _failure(self, error: BaseException) -> ApplicationError:
        """Return the failure of the attempt, after storing its full text if the text is long."""
        details = attempt_details(self._info, self._models.usage) | {"tool_version": self._version}
        if lineage := self._lineage():
            details[DETAIL_LINEAGE] = lineage
        if isinstance(error, ModelFailure):
            details |= failure_details(error)
        if isinstance(error, OutcomeUnknown):
            # This attempt only reports the earlier attempt that called the tool.
            details["attempt"] = self._heartbeats.earlier_started_attempt
        if isinstance(error, AskPerson):
            try:
                details |= self._redaction.redact_value(request_details(error))
            except InvalidResult as cause:
                error = cause
        error, decision = await self._decide(error, details)
        full_text = full_failure_text(error, self._redaction)
        ref = await self._values.store_failure(full_text) if full_text is not None else None
        if ref is not None:
            details[DETAIL_FULL_TEXT] = ref
        failure = activity_failure_of(error, decision, details=details, redaction=self._redaction)
        if isinstance(error, CallDeferred):
            return failure
        structlog.get_logger("dagwright.activities").warning(
            "tool failed",
            tool=self._spec.name,
            code=decision.code,
            is_final=decision.is_final,
            message=failure.message,
        )
        return failure

    async def _decide(self, error: BaseException, details: dict[str, Any]) -> tuple[BaseException, RetryDecision]:
        """Return the error to report, and whether the call is retried; add data for the retry to `details`."""
        decide = retry_decision if self._spec.declaration.worker is None else worker_tool_retry_decision
        error, decision = await self._deferral_or_error(error, decide(error, self._effects))
        if isinstance(error, ArgumentNotLoaded) and self._was_called and self._effects is Effects.WRITE:
            # The tool itself raised the error, possibly after its change.
            decision = replace(decision, is_final=True)
        elif (unstored_bytes := self._unstored_bytes(error)) is not None and not decision.is_final:
            # The run waits for the store and makes the call again: an outage uses up no attempt.
            decision = RetryDecision(ERROR_STORE_RETRY, is_final=True)
            details[DETAIL_UNSTORED_BYTES] = unstored_bytes
        if self._effects is Effects.WRITE and not decision.is_final:
            # An attempt that did not call the tool does not count: the server may pause or repeat the attempt.
            is_counted = self._was_called and not isinstance(error, CallDeferred)
            max_attempts = allowed_attempts() if is_counted else None
            decision = replace(
                decision, is_final=max_attempts is not None and self._heartbeats.call_count >= max_attempts
            )
            await self._heartbeats.record_end()
        if isinstance(error, CallDeferred) and not decision.is_final:
            details |= await self._record_deferral(error)
        elif not decision.is_final and decision.delay is None:
            decision = replace(decision, delay=backoff_of_counted_attempts(self._heartbeats))
        return error, decision

    async def _record_deferral(self, deferral: CallDeferred) -> dict[str, Any]:
        """Record that the attempt does not count; in a batch, return failure details for the call's activity."""
        if self._is_in_batch:
            # The separate activity of the call records the deferral.
            return {DETAIL_DEFERRED: deferral.state}
        if self._deferrals is not None:
            await self._deferrals.record(deferral, self._heartbeats)
        return {}

    def _unstored_bytes(self, error: BaseException) -> int | None:
        """Return the size of a result that the store did not accept, 0 if an argument was not loaded, else `None`."""
        if isinstance(error, ResultNotStored):
            # A tool can also raise this error, but without a size.
            return error.size_bytes or None
        return 0 if isinstance(error, ArgumentNotLoaded) and not self._was_called else None

    def _lineage(self) -> dict[str, Any]:
        """Return the lineage of the values that the call has read."""
        if not self._read_locations:
            return {}
        return lineage_of_locations(
            self._redaction.redact_location(location) for location in self._read_locations
        ).to_document()

    def _metadata(self) -> dict[str, bytes]:
        metadata = attempt_metadata(self._info, self._models.usage, tool_version=self._version)
        if self._cached_result is not None:
            metadata[METADATA_CACHED] = pydantic_core.to_json(self._cached_result.provenance())
        if lineage := self._lineage():
            metadata[METADATA_LINEAGE] = pydantic_core.to_json(lineage)
        return metadata


async def _await_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine to its end despite cancellation: the tool has ended, so its result or failure counts."""
    task = asyncio.ensure_future(work)
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
