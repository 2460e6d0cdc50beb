"""A ledger of changes, with the tools that make and undo them."""

import asyncio
from typing import Any

from dagwright.tools import GiveUp, ToolRegistry, context, tool


class Ledger:
    """Changes that the tools of a test make. The names of changes must be unique across tests.

    Attributes:
        effective_changes: key of each change that is not undone -> name of the change.
        steps: changes (`+name`) and undos (`-name`), in order.
        undo_arguments: name of a change -> arguments and result of its call, as its undo received them.
        entered: names of changes and undos (`-name`) that have started to wait.
        released: names of changes and undos that need not wait; a test adds them.
        failing_undos: names of undos (`-name`) that fail; a test adds them.
    """

    def __init__(self) -> None:
        self.effective_changes: dict[str, str] = {}
        self.steps: list[str] = []
        self.undo_arguments: dict[str, dict[str, Any]] = {}
        self.entered: list[str] = []
        self.released: set[str] = set()
        self.failing_undos: set[str] = set()
        self._undone_keys: set[str] = set()

    def steps_of(self, test: str) -> list[str]:
        return [step.replace(f"{test}:", "") for step in self.steps if f"{test}:" in step]

    def make(self, name: str) -> dict[str, str]:
        key = context().idempotency_key
        if key not in self.effective_changes and key not in self._undone_keys:
            self.effective_changes[key] = name
            self.steps.append(f"+{name}")
        return {"id": name}

    def undo(self, key: str, name: str) -> None:
        self._undone_keys.add(key)
        if self.effective_changes.pop(key, None) is not None:
            self.steps.append(f"-{name}")

    async def hold(self, name: str) -> None:
        self.entered.append(name)
        while name not in self.released:
            await asyncio.sleep(0.02)

    def registry(self) -> ToolRegistry:
        """Return the tools: `make`, `make_and_fail`, `make_and_hold`, `send` (no undo), `refuse`, and `unmake`.

        The argument `after` is not used: a reference in it makes the node depend on another node.
        """

        @tool(effects="idempotent", undo="unmake")
        def make(name: str, after: Any = None) -> dict[str, str]:
            return self.make(name)

        @tool(effects="idempotent", undo="unmake", max_attempts=1)
        def make_and_fail(name: str) -> None:
            self.make(name)
            raise GiveUp("the change was made, but the call failed")

        @tool(effects="idempotent", undo="unmake")
        async def make_and_hold(name: str, after: Any = None) -> dict[str, str]:
            result = self.make(name)
            await self.hold(name)
            return result

        @tool(effects="write")
        def send(name: str) -> None:
            self.steps.append(f"+{name}")

        @tool(effects="read")
        def refuse(message: str = "no", after: Any = None) -> None:
            raise GiveUp(message)

        @tool(effects="idempotent", max_attempts=2)
        async def unmake(key: str, arguments: dict[str, Any], result: Any) -> None:
            name = arguments["name"]
            self.undo_arguments[name] = {"arguments": arguments, "result": result}
            if f"-{name}" in self.failing_undos:
                raise GiveUp("stuck")
            if name.endswith(":held"):
                await self.hold(f"-{name}")
            self.undo(key, name)

        return ToolRegistry.of(make, make_and_fail, make_and_hold, send, refuse, unmake)
