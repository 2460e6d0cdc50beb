"""The runs that calls of the MCP server start."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import SecretStr

from dagwright.client import Terms
from dagwright.mcp_server.catalogue import _ask
from dagwright.mcp_server.starting import CallRefused, Starter
from dagwright.plan.compiled import CompiledPlan
from dagwright.settings import Settings
from dagwright.toolset import load_toolset
from tests.support.rounds import Workers


class _Runs:
    """Keeps what would be started."""

    def __init__(self) -> None:
        self.started: list[tuple[CompiledPlan, Terms]] = []

    async def start(self, plan: CompiledPlan, _: Any, *, terms: Terms, **_rest: Any) -> None:
        self.started.append((plan, terms))


def _starter(folder: Path) -> tuple[Starter, _Runs]:
    settings = Settings(state_dir=folder, model="small", openai_api_key=SecretStr("key"))
    toolset, runs = replace(load_toolset(settings), own=Workers().registry()), _Runs()
    return Starter(cast("Any", runs), cast("Any", SimpleNamespace()), toolset), runs


async def test_question_has_the_rounds_and_the_times_that_its_call_says(tmp_path: Path) -> None:
    starter, runs = _starter(tmp_path)
    said = {"max_rounds": 4, "worker_timeout": "2m", "timeout": "20m"}
    assert set(said) < set(_ask().input_schema["properties"])
    await starter.words({"request": "Compare.", "profile": "rounds", **said}, run=None)
    ((plan, terms),) = runs.started
    assert plan.pursuit is not None
    assert (plan.pursuit["max_rounds"], plan.pursuit["worker_timeout_s"]) == (4, 120)
    assert (plan.deadline_s, terms.deadline_s) == (1_200, 1_200)


@pytest.mark.parametrize("said", [{"max_rounds": 4}, {"worker_timeout": "2m"}])
async def test_rounds_are_refused_where_there_are_none(tmp_path: Path, said: dict[str, Any]) -> None:
    starter, runs = _starter(tmp_path)
    with pytest.raises(CallRefused, match=f"{next(iter(said))}: only the profile rounds has it"):
        await starter.words({"request": "Compare.", **said}, run=None)
    with pytest.raises(CallRefused, match="worker_timeout: "):
        await starter.words({"request": "Compare.", "profile": "rounds", "worker_timeout": "soon"}, run=None)
    assert runs.started == []
