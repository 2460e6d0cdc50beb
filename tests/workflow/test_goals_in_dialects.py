"""Plans of models in the published formats, from request to answer: they do not stream, and run all the same."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from dagwright.testing import ModelServer
from tests.support.agents import agent_runs
from tests.support.goals import ended, goal, purposes

pytestmark = pytest.mark.server

HUGGINGGPT = [
    {"task": "plus", "id": 0, "dep": [-1], "args": {"left": 1, "right": 2}},
    {"task": "plus", "id": 1, "dep": [0], "args": {"left": "<GENERATED>-0", "right": 4}},
]
TASKBENCH = {
    "task_steps": ["Add the first two", "Add the third"],
    "task_nodes": [{"task": "plus", "arguments": [1, 2]}, {"task": "plus", "arguments": ["<node-0>", 4]}],
}
NESTFUL = [
    {"name": "plus", "arguments": {"left": 1, "right": 2}, "label": "$var1"},
    {"name": "plus", "arguments": {"left": "$var1$", "right": 4}, "label": "$var2"},
    {"name": "var_result", "arguments": {"sum": "$var2$"}},
]
LLMCOMPILER = "Thought: one after the other\n1. plus(1, 2)\n2. plus($1, right=4)\nThought: done\n3. join()<END_OF_PLAN>"
REWOO = "Plan: Say one.\n#E1 = echo[one]\nPlan: Say it again.\n#E2 = echo[again #E1]\n"


def fenced(plan: Any) -> str:
    """Returns a plan as models like to answer."""
    return f"Here is the plan:\n\n```json\n{json.dumps(plan, indent=2)}\n```\nIt has two steps."


async def test_plan_in_a_published_format_is_run_and_answered(client: Client, tmp_path: Path) -> None:
    cases: list[tuple[str, Mapping[str, Any]]] = [
        (LLMCOMPILER, {"1": 3.0, "2": 7.0}),
        (REWOO, {"E1": {"query": "one"}, "E2": {"query": 'again {"query":"one"}'}}),
        (json.dumps(HUGGINGGPT), {"0": 3.0, "1": 7.0}),
        (fenced(HUGGINGGPT), {"0": 3.0, "1": 7.0}),
        (json.dumps(TASKBENCH), {"node-0": 3.0, "node-1": 7.0}),
        (fenced(TASKBENCH), {"node-0": 3.0, "node-1": 7.0}),
        (json.dumps(NESTFUL), {"var1": 3.0, "var2": 7.0}),
        (fenced(NESTFUL), {"var1": 3.0, "var2": 7.0}),
    ]
    script = [text for said, _ in cases for text in (said, "It is 7.")]
    async with ModelServer(*script) as server, agent_runs(client, server, tmp_path) as runs:
        for said, results in cases:
            before = len(server.calls)
            found = await ended(runs, await runs.start_compiled(goal(runs, "Add 1, 2 and 4.", "plus", "echo")))
            assert (found["status"], found["output"]) == ("completed", "It is 7."), said
            assert [*found["nodes"]] == ["plan", "read", *results, "answer"], said
            assert {name: found["nodes"][name]["result"] for name in results} == results
            assert server.calls[before].is_streamed
            assert purposes([*server.calls][before:]) == [("plan", "plan"), ("answer", "answer")]
