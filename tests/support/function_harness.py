"""Functions called as a worker calls tools, with secrets, but without a server or a model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from dagwright.activities.call_tool import activities_of_tools, callable_tools
from dagwright.activities.result_cache import ResultCache
from dagwright.activities.values import LargeValues
from dagwright.store import PayloadStore
from dagwright.tools import ToolRegistry, ToolSpec, spec_of, tool
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.secret_bindings import SecretBinding
from dagwright.tools.spec import EffectsName
from tests.support.activity_harness import ActivityHarness
from tests.support.memory_store import MemoryStore

SECRETS = {"TOKEN": 'p@ss "word" é', "PIN": "12"}
_ALLOWED_TOOLS = {"TOKEN": ("echo", "leak"), "PIN": ("l*",), "NOPE": ("*",)}
BINDINGS = {name: SecretBinding(tools=tools) for name, tools in _ALLOWED_TOOLS.items()}


def require_spec(function: object) -> ToolSpec:
    spec = spec_of(function)
    assert spec is not None
    return spec


class FunctionHarness(ActivityHarness):
    """Call one function as a worker calls a tool."""

    def __init__(
        self, function: Callable[..., Any], *, store: PayloadStore | None = None, drain_limit_s: float | None = None
    ) -> None:
        environment = ToolEnvironment(
            Path(), find_secret=SECRETS.get, binding_of=BINDINGS.__getitem__, drain_limit_s=drain_limit_s
        )
        store = store or MemoryStore()
        values, cache = LargeValues(store, retry_pauses_s=()), ResultCache(store)
        calls = callable_tools(ToolRegistry.of(function), environment, values=values, cache=cache)
        [activity] = activities_of_tools(calls).values()
        super().__init__(activity)

    async def result(self, *arguments: Any, **headers: Any) -> Any:
        return json.loads((await self.payload(*arguments, **headers)).data)


def failing_harness(error: BaseException, effects: EffectsName = "read") -> FunctionHarness:
    """Return the harness of a tool that raises an error."""

    @tool(effects=effects)
    def failing() -> NoReturn:
        raise error

    return FunctionHarness(failing)
