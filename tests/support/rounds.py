"""Questions that are answered in rounds, for tests: small worker tools, planner responses, and runs."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from temporalio.client import Client

from dagwright.core.model.compiled import CompiledPlan
from dagwright.planner import RoundsOptions, prepare_rounds
from dagwright.planning.rounds.rounds_spec import DEFAULT_MAX_ROUNDS, DEFAULT_SYNTHESIS, RoundsLimits, Synthesis
from dagwright.testing import ModelServer
from dagwright.tools import AskPerson, GiveUp, SubGoal, ToolRegistry, WorkerResult, worker_tool
from tests.support.agents import model_settings
from tests.support.runs import Document, Runs, serving_runs
from tests.support.tools import CallHarness

NUMBERS = {"Maersk": [3, 4], "Evergreen": [5, 6]}


class WorkerTools:
    """Worker tools of the tests.

    Attributes:
        remaining_failures: carrier -> number of calls of `pick` that still fail.
    """

    def __init__(self, harness: CallHarness | None = None) -> None:
        self.harness = harness or CallHarness()
        self.calls: Counter[str] = Counter()
        self.remaining_failures: Counter[str] = Counter()

    def registry(self) -> ToolRegistry:
        @worker_tool(outputs=["numbers"], goal_type="support", preconditions=["the question names a carrier"])
        async def pick(name: str) -> dict[str, Any]:
            """Return the numbers of a carrier."""
            self.calls["pick"] += 1
            if self.remaining_failures[name]:
                self.remaining_failures[name] -= 1
                raise GiveUp(f"the numbers of {name} are not there")
            return {"numbers": NUMBERS[name]}

        @worker_tool(outputs=["total"], goal_type="support", requires=["numbers"])
        async def add_up(numbers: list[float] | None = None) -> dict[str, Any]:
            """Add numbers."""
            self.calls["add_up"] += 1
            return {"total": sum(numbers or ())}

        @worker_tool(outputs=["comparison"], goal_type="deliverable", requires=["total"])
        async def compare(total: list[float] | None = None, *, sub_goal: SubGoal) -> dict[str, Any]:
            """Compare totals in words."""
            self.calls["compare"] += 1
            message = " and ".join(f"{each:g}" for each in total or ())
            return {"comparison": f"{sub_goal.description}: {message}"}

        @worker_tool(outputs=["clarification"], goal_type="deliverable")
        async def clarify(question: str) -> dict[str, Any]:
            """Ask the person a question."""
            self.calls["clarify"] += 1
            return {"clarification": question}

        @worker_tool(outputs=["found", "rest"], same_as={"rest": "numbers"}, goal_type="support")
        async def part(names: list[str]) -> WorkerResult:
            """Return the available results for some names."""
            self.calls["part"] += 1
            found = [name for name in names if name in NUMBERS]
            return WorkerResult(status="partial", outputs={"found": found}, message=f"{len(found)} of {len(names)}")

        @worker_tool(outputs=["held"], goal_type="support")
        async def stay(name: str) -> dict[str, Any]:
            """Wait until the test releases it."""
            self.harness.enter(name)
            await self.harness.wait(name)
            return {"held": name}

        @worker_tool(outputs=["permission"], goal_type="support", effects="write")
        async def ask_permission(words: str) -> dict[str, Any]:
            """Ask a person, although no person is available."""
            raise AskPerson({"type": "APPROVAL", "prompt": words})

        @worker_tool(outputs=["rows", "row_count"], goal_type="support")
        async def rows(count: int) -> dict[str, Any]:
            """Return a long table."""
            return {"rows": [{"row": row, "text": "x" * 50} for row in range(count)], "row_count": count}

        return ToolRegistry.of(pick, add_up, compare, clarify, part, stay, ask_permission, rows)


@asynccontextmanager
async def rounds_runs(
    client: Client, folder: Path, *script: Any, worker_tools: WorkerTools | None = None, has_workflow_cache: bool = True
) -> AsyncIterator[tuple[ModelServer, Runs]]:
    """Serve questions with a scripted model. At the end of the block, check and replay each run."""
    async with ModelServer(*script) as server:
        settings = model_settings(server, folder)
        registry = (worker_tools or WorkerTools()).registry()
        async with serving_runs(client, registry, settings=settings, has_workflow_cache=has_workflow_cache) as runs:
            yield server, runs
            await runs.check_runs()


def question_plan(
    runs: Runs,
    text: str = "Compare Maersk and Evergreen.",
    *,
    max_rounds: int = DEFAULT_MAX_ROUNDS,
    synthesis: Synthesis = DEFAULT_SYNTHESIS,
) -> CompiledPlan:
    limits = RoundsLimits(max_rounds, synthesis=synthesis)
    return prepare_rounds(text, runs.tools, RoundsOptions(limits=limits))[0]


def continue_response(*sub_goals: Mapping[str, Any], reasoning: str = "It is the next step.") -> str:
    return json.dumps({"reasoning": reasoning, "action": "continue", "sub_goals": list(sub_goals)})


def done_response(reasoning: str = "All is there.", **inputs: Any) -> str:
    """Return a planner response that ends the rounds; `inputs` are `ref`s."""
    return json.dumps({"reasoning": reasoning, "action": "done", "synthesis_inputs": inputs})


def failed_response(reasoning: str) -> str:
    return json.dumps({"reasoning": reasoning, "action": "failed"})


def sub_goal(number: int, worker: str, description: str = "", **arguments: Any) -> dict[str, Any]:
    """Return a sub-goal; `arguments` are its params, or its inputs if they are `ref`s."""
    inputs = {name: value for name, value in arguments.items() if is_ref(value)}
    params = {name: value for name, value in arguments.items() if not is_ref(value)}
    return {"id": number, "worker": worker, "description": description, "inputs": inputs, "params": params}


def ref(number: int, slot: str) -> dict[str, Any]:
    return {"from_sub_goal": number, "slot": slot}


def is_ref(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(is_ref, value))
    return isinstance(value, dict) and "from_sub_goal" in value


def prompt_of(server: ModelServer, node_id: str) -> str:
    return next(call.text for call in reversed(server.calls) if call.metadata.get("node_id") == node_id)


def sub_goal_statuses_of(document: Document) -> list[list[tuple[int, str]]]:
    rounds = document["rounds"]["rounds"]
    return [[(result["sub_goal_id"], result["status"]) for result in each["results"]] for each in rounds]
