"""Tools for the benchmark questions, declared with `@worker_tool`. The benchmark passes this file as `--tools`."""

from typing import Any

from dagwright.tools import worker_tool


@worker_tool(outputs=["noted"], goal_type="support")
async def note(name: str, previous: str = "") -> dict[str, Any]:  # noqa: ARG001 - only for a dependency
    """Note a name."""
    return {"noted": name}


@worker_tool(outputs=["report"], goal_type="deliverable")
async def describe(noted: str) -> dict[str, Any]:
    """Report the noted name."""
    return {"report": f"It is {noted}."}
