"""Make the model calls of an activity with the worker's clients, and add up their usage.

`call_model`, tools and agents share this class, so all report usage in the same way: in the metadata of the result or
the details of the failure. This module must not import workflows.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from temporalio import activity

from dagwright.activities.call_headers import limited_subjects
from dagwright.activities.call_limits import UNLIMITED_ADMISSION, Admission, CallLimits, limited_call_id
from dagwright.activities.heartbeats import Heartbeats
from dagwright.activities.service_waits import requested_wait
from dagwright.core.boundary.usage_reports import Usage
from dagwright.core.model.call_limits import Subject, subject_at_host
from dagwright.llm.client import ModelClient, ModelClients, ModelStream, SecretMissing
from dagwright.planning.model_calls.model_failure import ModelError, ModelFailure
from dagwright.planning.model_calls.model_requests import ModelCall, ModelResponse, NamedEndpoint


class ModelCaller:
    """The model calls of one attempt of an activity.

    Args:
        clients: the worker's model clients; `None` if the worker has no model clients.
        info: activity info of the attempt; its run and node are the default labels of model calls.
        heartbeats: heartbeats of the attempt, which report the usage for the next attempt.
        limits: limits of calls across all runs; `None` if calls have no limits.
    """

    def __init__(
        self,
        clients: ModelClients | None,
        info: activity.Info,
        heartbeats: Heartbeats,
        *,
        limits: CallLimits | None = None,
    ) -> None:
        self._limits = limits
        self._nested_call_count = 0
        self._admission: Admission | None = None
        """Result of `admit`, for an attempt that only makes one model call. `None` for a tool or agent: each of its
        model calls is admitted separately."""
        self._clients = clients
        self._info = info
        self._heartbeats = heartbeats

    @property
    def usage(self) -> Usage:
        """Return the usage of all calls so far, including failed calls and earlier attempts."""
        return self._heartbeats.usage

    async def call(self, call: ModelCall, endpoint: NamedEndpoint | None = None) -> ModelResponse:
        """Make one model call and return its response.

        Args:
            endpoint: `None` for the provider in the worker's settings.

        Raises:
            ModelFailure: the call failed or its response is unusable.
        """
        return await self._call(endpoint, call, lambda client: client.complete(self._add_labels(call)))

    async def stream_call(
        self, call: ModelCall, endpoint: NamedEndpoint | None, *, feed: Callable[[ModelStream, str], None]
    ) -> ModelResponse:
        """Make one model call, pass each piece of its text to `feed`, and return the complete response.

        Args:
            feed: called with the stream and the next piece of text.

        Raises:
            ModelFailure: the call failed or its response is unusable.
        """

        async def stream_response(client: ModelClient) -> ModelResponse:
            async with client.stream(self._add_labels(call)) as stream:
                async for text in stream:
                    feed(stream, text)
            return stream.answer

        return await self._call(endpoint, call, stream_response)

    async def admit(self, call: ModelCall, endpoint: NamedEndpoint | None) -> Admission:
        """Wait for the limits of the only model call of the attempt, or defer the attempt.

        Raises:
            CallDeferred: the call must not be made now.
        """
        if self._limits is None:
            return UNLIMITED_ADMISSION
        subjects = [*limited_subjects(), *self._model_subjects(call, endpoint)]
        self._admission = await self._limits.admit(subjects, self._info, self._heartbeats, kind="model_call")
        return self._admission

    def _model_subjects(self, call: ModelCall, endpoint: NamedEndpoint | None) -> list[Subject]:
        """Return the model, and the model at its server if the call has an endpoint, as subjects of limits."""
        name = call.config.model or (self._clients.default_model if self._clients is not None else None)
        if not name:
            return []
        server_subject = None if endpoint is None else subject_at_host("model", name, endpoint.base_url)
        return [Subject("model", name), *([] if server_subject is None else [server_subject])]

    async def _hold_model_calls(self, failure: ModelFailure, model_subjects: Sequence[Subject]) -> None:
        """Hold the other calls of a model whose service asked to wait."""
        wait = requested_wait(failure)
        if wait is not None and self._limits is not None and model_subjects:
            await self._limits.hold(model_subjects[-1], wait)

    async def _admit_nested_call(self, model_subjects: Sequence[Subject]) -> Admission:
        """Wait for the limits of a model call of a tool or agent."""
        if self._limits is None:
            return UNLIMITED_ADMISSION
        self._nested_call_count += 1
        model_call_id = f"{limited_call_id(self._info)}-{self._nested_call_count}"
        subjects = [*limited_subjects(), *model_subjects]
        return await self._limits.admit_model_call(subjects, model_call_id, self._heartbeats)

    async def _call(
        self,
        endpoint: NamedEndpoint | None,
        call: ModelCall,
        send: Callable[[ModelClient], Awaitable[ModelResponse]],
    ) -> ModelResponse:
        if self._clients is None:
            raise ModelFailure(ModelError.MODEL_NOT_SET, "this worker has no model client")
        model_subjects = self._model_subjects(call, endpoint)
        admission = self._admission or await self._admit_nested_call(model_subjects)
        try:
            return await self._send(endpoint, send, admission)
        except ModelFailure as failure:
            await self._hold_model_calls(failure, model_subjects)
            raise
        finally:
            if self._admission is None:
                admission.release()

    async def _send(
        self,
        endpoint: NamedEndpoint | None,
        send: Callable[[ModelClient], Awaitable[ModelResponse]],
        admission: Admission,
    ) -> ModelResponse:
        assert self._clients is not None
        try:
            response = await send(self._clients.client(endpoint))
        except ModelFailure as failure:
            self._heartbeats.add_usage(failure.usage)
            admission.add_usage(failure.usage)
            raise
        except SecretMissing as error:
            raise ModelFailure(ModelError.KEY_MISSING, str(error)) from None
        self._heartbeats.add_usage(response.usage)
        admission.add_usage(response.usage)
        return response

    def _add_labels(self, call: ModelCall) -> ModelCall:
        labels, run_id, node_id = call.labels, self._info.workflow_id or "", self._info.activity_id
        return replace(call, labels=replace(labels, run_id=labels.run_id or run_id, node_id=labels.node_id or node_id))


def failure_details(failure: ModelFailure) -> Mapping[str, Any]:
    """Return the failure details of a model call."""
    return {"action": failure.action, "advice": failure.advice}
