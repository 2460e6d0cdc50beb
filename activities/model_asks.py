"""How an activity asks models: with the clients of its worker, under its own name, and adding up what that uses.

`call_model`, tools and agents all ask through this, so that each says in the same way what it has used: in the metadata
of its result, or in the details of its failure. This module must not import workflows.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from temporalio import activity

from dagwright.activities.heartbeats import Heartbeats
from dagwright.core.boundary.usage import Usage
from dagwright.llm.client import ModelClient, ModelStream
from dagwright.llm.clients import ModelClients, SecretMissing
from dagwright.planning.model_calls.calls import ModelAnswer, ModelCall, ModelError, NamedEndpoint
from dagwright.planning.model_calls.failures import ModelFailure


class ModelAsks:
    """The questions that one attempt of one activity asks.

    Args:
        clients: of the worker; `None` if it has none.
        info: of the attempt; run and node of a call that names none.
        heartbeats: of the attempt; they keep what has been used for the next one.
    """

    def __init__(self, clients: ModelClients | None, info: activity.Info, heartbeats: Heartbeats) -> None:
        self._clients = clients
        self._info = info
        self._heartbeats = heartbeats

    @property
    def usage(self) -> Usage:
        """Returns what all questions so far have used, those that failed and those of earlier attempts with them."""
        return self._heartbeats.usage

    async def ask(self, call: ModelCall, endpoint: NamedEndpoint | None = None) -> ModelAnswer:
        """Asks once and returns the answer.

        Args:
            endpoint: `None` for the service of the worker's settings.

        Raises:
            ModelFailure: there is no answer that is of use.
        """
        return await self._asked(endpoint, lambda client: client.complete(self._named(call)))

    async def ask_streamed(
        self, call: ModelCall, endpoint: NamedEndpoint | None, *, take: Callable[[ModelStream, str], None]
    ) -> ModelAnswer:
        """Asks once and returns the answer, of which each piece is told as it is written.

        Args:
            take: called with the stream and the next piece of the text.

        Raises:
            ModelFailure: there is no answer that is of use.
        """

        async def told(client: ModelClient) -> ModelAnswer:
            async with client.stream(self._named(call)) as stream:
                async for words in stream:
                    take(stream, words)
            return stream.answer

        return await self._asked(endpoint, told)

    async def _asked(
        self, endpoint: NamedEndpoint | None, ask: Callable[[ModelClient], Awaitable[ModelAnswer]]
    ) -> ModelAnswer:
        if self._clients is None:
            raise ModelFailure(ModelError.MODEL_MISSING, "this worker asks no models")
        try:
            answer = await ask(self._clients.client(endpoint))
        except ModelFailure as failure:
            self._heartbeats.add_usage(failure.usage)
            raise
        except SecretMissing as error:
            raise ModelFailure(ModelError.KEY_MISSING, str(error)) from None
        self._heartbeats.add_usage(answer.usage)
        return answer

    def _named(self, call: ModelCall) -> ModelCall:
        labels, run, node = call.labels, self._info.workflow_id or "", self._info.activity_id
        return replace(call, labels=replace(labels, run=labels.run or run, node=labels.node or node))


def failure_details(failure: ModelFailure) -> Mapping[str, Any]:
    """Returns what the details of a failure say of the model call that it comes from."""
    return {"action": failure.action, "advice": failure.advice}
