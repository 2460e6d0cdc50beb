"""Tools called as a worker with a model would call them, without a server."""

from contextlib import nullcontext
from typing import Any

from temporalio.api.common.v1 import Payload

from dagwright.activities.call_tool import activities_of_tools, callable_tools
from dagwright.activities.result_cache import ResultCache
from dagwright.activities.values import LargeValues
from dagwright.llm import Endpoint
from dagwright.llm.client import ModelClients, ModelSetup
from dagwright.testing import ModelServer
from dagwright.tools import ToolRegistry
from dagwright.tools.environment import ToolEnvironment
from tests.support.activity_harness import ActivityHarness
from tests.support.memory_store import MemoryStore


def clients_of(server: ModelServer) -> ModelClients:
    return ModelClients(ModelSetup(Endpoint(server.base_url, "key"), model="small"))


class ToolHarness(ActivityHarness):
    """Call the single tool of a registry, with or without models."""

    def __init__(self, tools: ToolRegistry, environment: ToolEnvironment, models: ModelClients | None) -> None:
        store = MemoryStore()
        values, cache = LargeValues(store, retry_pauses_s=()), ResultCache(store)
        calls = callable_tools(tools, environment, values=values, cache=cache, models=models)
        [activity] = activities_of_tools(calls).values()
        super().__init__(activity)
        self._models = models

    async def payload(self, *arguments: Any, **headers: Any) -> Payload:
        async with self._models or nullcontext():
            return await super().payload(*arguments, **headers)
