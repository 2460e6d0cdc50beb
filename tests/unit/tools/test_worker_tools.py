"""`@worker_tool`: the card and the declaration of a function, and its return value as a WorkerResult."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pydantic
import pytest

from dagwright.core.model.tools import Effects, WorkerCard
from dagwright.core.validation.worker_tools import PreconditionMissing
from dagwright.settings import Settings
from dagwright.tools import (
    RetryLater,
    SubGoal,
    ToolLoadError,
    ToolRegistry,
    WorkerResult,
    declare_activity,
    worker_tool,
)
from dagwright.tools.errors import InvalidArguments, InvalidResult
from dagwright.tools.testing import call_worker, tool_context
from dagwright.toolset.toolset import load_toolset
from tests.support.function_harness import FunctionHarness, require_spec


class Query(pydantic.BaseModel):
    index: str


@worker_tool(
    outputs=["hits", "hit_count"], goal_type="support", requires=["query"], preconditions=["There is a query."]
)
async def search(query: Query, size: int = 10) -> dict[str, Any]:
    """Searches an index.

    Args:
        query: a query of `es_query_gen`
        size: maximum number of hits
    """
    return {"hits": [query.index] * size, "hit_count": size}


@worker_tool(outputs=["statement"], goal_type="deliverable", timeout="5m", uses_models=True)
def describe(sub_goal: SubGoal) -> WorkerResult:
    """Return the sub-goal."""
    return WorkerResult(outputs={"statement": sub_goal.description}, message=f"{sub_goal.id} {sub_goal.goal_type}")


def worker_tool_with(value: Any, *, outputs: tuple[str, ...] = ("a", "b")) -> Any:
    @worker_tool(outputs=outputs, goal_type="deliverable")
    def answer() -> Any:
        """Answers."""
        if isinstance(value, BaseException):
            raise value
        return value

    return answer


def test_declaration_of_a_worker_tool_has_its_card() -> None:
    declaration = require_spec(search).declaration
    assert declaration.worker == WorkerCard(
        description="Searches an index.",
        preconditions=("There is a query.",),
        requires=("query",),
        outputs=("hits", "hit_count"),
        goal_type="support",
    )
    expected = ("search", Effects.READ, "Searches an index.")
    assert (declaration.name, declaration.effects, declaration.description) == expected
    assert declaration.input_schema is not None
    assert list(declaration.input_schema["properties"]) == ["query", "size"]
    # The run checks the required slots, because earlier sub-goals may fill them.
    assert "required" not in declaration.input_schema


async def test_worker_tool_receives_its_slots_converted_to_its_parameter_types() -> None:
    result = await call_worker(search, {"query": {"index": "x"}, "size": 2})
    assert result == WorkerResult(1, "success", {"hits": ["x", "x"], "hit_count": 2})
    assert await search(query=Query(index="y"), size=1) == {"hits": ["y"], "hit_count": 1}


async def test_worker_tool_receives_its_sub_goal() -> None:
    result = await call_worker(describe, description="Say it")
    assert result == WorkerResult(1, "success", {"statement": "Say it"}, message="1 deliverable")


async def test_params_of_a_sub_goal_are_the_arguments_that_no_slot_fills() -> None:
    @worker_tool(outputs=["params"], goal_type="support")
    def repeat(sub_goal: SubGoal, names: list[str], limit: int = 3) -> dict[str, Any]:
        """Repeats its arguments."""
        return {"params": dict(sub_goal.params)}

    assert (await call_worker(repeat, {"names": ["a"]})).outputs == {"params": {"names": ["a"]}}
    spec = require_spec(repeat)
    inputs = {"names": {"from_sub_goal": 1, "slot": "found"}}
    document = {"id": 2, "worker": "repeat", "description": "", "outputs": ["params"], "goal_type": "support"}
    keywords = spec.bind({"names": ["a"], "limit": 2, "sub_goal": {**document, "inputs": inputs}})
    assert spec.function is not None
    with tool_context(node_id="sg2"):
        assert spec.function(**keywords)["outputs"] == {"params": {"limit": 2}}


async def test_worker_tool_without_a_required_slot_is_not_called() -> None:
    for arguments in ({}, {"query": None}):
        with pytest.raises(PreconditionMissing, match="'search' was not called: it requires 'query'"):
            await call_worker(search, arguments)
    with pytest.raises(InvalidArguments, match="/query/index"):
        await call_worker(search, {"query": {}})


async def test_partial_result_has_all_slots_and_a_failed_result_has_no_slots() -> None:
    partial_result = WorkerResult(status="partial", outputs={"b": 1}, message="no a")
    expected = WorkerResult(1, "partial", {"a": None, "b": 1}, message="no a")
    assert await call_worker(worker_tool_with(partial_result)) == expected
    failed_result = WorkerResult(status="failed", outputs={"a": 1}, error="no luck", message="ask again")
    assert await call_worker(worker_tool_with(failed_result)) == WorkerResult(1, "failed", {}, "no luck", "ask again")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": 1}, "must return exactly the slots a, b: missing: 'b'"),
        ({"a": 1, "b": 2, "c": 3}, "not declared: 'c'"),
        (WorkerResult(status="partial", outputs={"c": 1}), "not declared: 'c'"),
        ([1], "must return a dict of its slots or a WorkerResult, not list"),
        (None, "not NoneType"),
    ],
)
async def test_outputs_that_are_not_exactly_the_declared_slots_are_rejected(value: Any, message: str) -> None:
    with pytest.raises(InvalidResult, match=message):
        await call_worker(worker_tool_with(value))


@pytest.mark.parametrize(
    ("error", "code", "is_final"),
    [
        (RetryLater("busy"), "tool_failed", False),
        (ConnectionResetError("gone"), "tool_failed", False),
        (httpx.ConnectError("gone"), "not_started", False),
        (KeyError("a mistake"), "tool_failed", True),
        (ValueError("no"), "tool_failed", True),
        ([], "invalid_result", True),
    ],
)
async def test_only_transient_errors_of_a_worker_tool_are_retried(error: Any, code: str, is_final: bool) -> None:
    failure = await FunctionHarness(worker_tool_with(error)).failure({})
    assert (failure.type, failure.non_retryable) == (code, is_final)


def test_function_that_cannot_be_a_worker_tool_is_rejected() -> None:
    def no_docstring() -> dict[str, Any]:
        return {}

    def with_text_sub_goal(sub_goal: str) -> dict[str, Any]:
        """Do it."""
        return {"a": sub_goal}

    def valid_function(x: int) -> dict[str, Any]:
        """Do it."""
        return {"a": x}

    cases: list[tuple[Any, Mapping[str, Any], str]] = [
        (no_docstring, {}, "Worker tool 'no_docstring': its docstring has no description"),
        (with_text_sub_goal, {}, "parameter 'sub_goal' receives the sub-goal; write `sub_goal: SubGoal`"),
        (
            valid_function,
            {"requires": ["y"]},
            "Worker tool 'valid_function': it requires 'y', which is not a parameter",
        ),
        (valid_function, {"outputs": []}, "Worker tool 'valid_function': outputs"),
        (valid_function, {"outputs": ["a", "a"]}, "Worker tool 'valid_function': outputs: duplicate name 'a'"),
        (valid_function, {"goal_type": "both"}, "Worker tool 'valid_function': goal_type"),
        (valid_function, {"effects": "none"}, "effects is 'none', expected one of"),
    ]
    for function, fields, message in cases:
        with pytest.raises((TypeError, ValueError), match=message):
            worker_tool(**{"outputs": ["a"], "goal_type": "support", **fields})(function)


def test_worker_tool_in_another_language_is_declared_with_its_card() -> None:
    card = WorkerCard(description="Finds.", outputs=("found",), goal_type="deliverable")
    spec = declare_activity("go.find", "go-tasks", effects="read", worker=card)
    assert (spec.declaration.worker, spec.declaration.description) == (card, "Finds.")


def _worker_tool_source(name: str, *, goal_type: str = "deliverable", docstring: str = "Answers.") -> str:
    return (
        f"from dagwright.tools import worker_tool\n@worker_tool(outputs=['a'], goal_type={goal_type!r})\n"
        f"def {name}() -> dict[str, int]:\n    {docstring!r}\n    return {{'a': 1}}\n"
    )


def _load(folder: Path, **files: str) -> Any:
    references = []
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
        references.append(str(folder / f"{name}.py"))
    return load_toolset(Settings(state_dir=folder), references)


def test_incompatible_worker_tools_are_rejected_when_they_are_loaded(tmp_path: Path) -> None:
    one, two = (_worker_tool_source(name) for name in ("one", "two"))
    assert list(_load(tmp_path, answers=one).user_tools.specs) == ["one"]
    support_tool = _worker_tool_source("three", goal_type="support")
    for files, message in (
        ({"x": one, "y": two}, "the worker tools 'one' and 'two' both output 'a'"),
        ({"z": support_tool}, "none of the worker tools makes a deliverable"),
        ({"v": _worker_tool_source("render_template")}, "has the name of a built-in tool"),
        ({"u": _worker_tool_source("one", docstring="")}, "its docstring has no description"),
    ):
        with pytest.raises(ToolLoadError, match=message):
            _load(tmp_path, **files)


def test_renamed_worker_tool_is_served_under_its_former_names() -> None:
    def look_up(name: str) -> dict[str, Any]:
        """Look up a name."""
        return {"found": name}

    renamed_tool = worker_tool(outputs=["found"], goal_type="support", aliases=["find", "search"])(look_up)
    assert ToolRegistry.of(renamed_tool).served_names() == {"look_up", "find", "search"}
    with pytest.raises(ValueError, match="aliases are its former names"):
        worker_tool(outputs=["found"], goal_type="support", aliases=["look_up"])(look_up)
