"""Model calls of an activity, made with the worker's clients and with the usage added up.

`call_model`, tools and agents share this class, so all report usage in the same way: in the metadata of the result or
the details of the failure. This module must not import workflows.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from temporalio import activity

from dagwright.activities.heartbeats import Heartbeats
from dagwright.core.boundary.usage_reports import Usage
from dagwright.llm.client import ModelClient, ModelStream
from dagwright.llm.clients import ModelClients, SecretMissing
from dagwright.planning.model_calls.model_failure import ModelFailure
from dagwright.planning.model_calls.model_requests import ModelCall, ModelError, ModelResponse, NamedEndpoint


class ModelCaller:
    """The model calls of one attempt of an activity.

    Args:
        clients: the worker's model clients; `None` if it has none.
        info: activity info of the attempt; calls without a run and node get those of the activity.
        heartbeats: heartbeats of the attempt, which report the usage for the next attempt.
    """

    def __init__(self, clients: ModelClients | None, info: activity.Info, heartbeats: Heartbeats) -> None:
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
        return await self._call(endpoint, lambda client: client.complete(self._with_labels(call)))

    async def call_streamed(
        self, call: ModelCall, endpoint: NamedEndpoint | None, *, feed: Callable[[ModelStream, str], None]
    ) -> ModelResponse:
        """Make one model call, pass each piece of its text to `feed`, and return the complete response.

        Args:
            feed: called with the stream and the next piece of text.

        Raises:
            ModelFailure: the call failed or its response is unusable.
        """

        async def streamed(client: ModelClient) -> ModelResponse:
            async with client.stream(self._with_labels(call)) as stream:
                async for text in stream:
                    feed(stream, text)
            return stream.answer

        return await self._call(endpoint, streamed)

    async def _call(
        self, endpoint: NamedEndpoint | None, call: Callable[[ModelClient], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        if self._clients is None:
            raise ModelFailure(ModelError.MODEL_MISSING, "this worker has no model client")
        try:
            answer = await call(self._clients.client(endpoint))
        except ModelFailure as failure:
            self._heartbeats.add_usage(failure.usage)
            raise
        except SecretMissing as error:
            raise ModelFailure(ModelError.KEY_MISSING, str(error)) from None
        self._heartbeats.add_usage(answer.usage)
        return answer

    def _with_labels(self, call: ModelCall) -> ModelCall:
        labels, run, node = call.labels, self._info.workflow_id or "", self._info.activity_id
        return replace(call, labels=replace(labels, run_id=labels.run_id or run, node_id=labels.node_id or node))


def failure_details(failure: ModelFailure) -> Mapping[str, Any]:
    """Return the failure details of a model call."""
    return {"action": failure.action, "advice": failure.advice}
