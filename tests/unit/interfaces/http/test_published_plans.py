"""Changes of files in the folder of published plans take effect without a restart."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from dagwright.interfaces.http.context import open_context
from dagwright.plans.templates import TemplateFolder
from dagwright.server import Connection, Server
from dagwright.settings import Settings
from dagwright.toolset.toolset import Toolset
from tests.unit.interfaces.http.conftest import (
    OfflineTemporalClient,
    client_of,
    message_of,
    status_and_code_of,
    write_plan,
)

PublishedFolder = tuple[httpx.AsyncClient, Path]


def _plan(title: str, tool: str = "calculator") -> Any:
    node = {"id": "a", "tool": tool, "arguments": {"expression": "1"}}
    return {"plan": 1, "title": title, "nodes": [node]}


@pytest.fixture
async def published_folder(tmp_path: Path, toolset: Toolset) -> AsyncIterator[PublishedFolder]:
    folder = write_plan(tmp_path / "plans", _plan("Double"))
    connection = Connection(cast("Any", OfflineTemporalClient()), Server("nowhere", "default"), frozenset())
    settings = Settings(state_dir=tmp_path, model="small")
    plans = TemplateFolder(folder, toolset.declarations())
    context = open_context(settings, connection, toolset, template_folder=plans)
    async with context as opened_context, client_of(opened_context) as http:
        yield http, folder


async def _titles(http: httpx.AsyncClient) -> dict[str, str]:
    models = (await http.get("/v1/models")).json()["data"]
    return {model["id"]: model["dagwright"]["title"] for model in models if model["id"].startswith("plan/")}


async def test_new_changed_and_removed_files_take_effect_immediately(published_folder: PublishedFolder) -> None:
    http, folder = published_folder
    assert await _titles(http) == {"plan/double": "Double"}
    write_plan(folder, _plan("Triple"), "triple.json")
    assert await _titles(http) == {"plan/double": "Double", "plan/triple": "Triple"}
    assert (await http.get("/v1/models/plan/triple")).status_code == 200
    write_plan(folder, _plan("Three times"), "triple.json")
    assert (await http.get("/v1/plans/triple")).json()["title"] == "Three times"
    (folder / "triple.json").unlink()
    assert await _titles(http) == {"plan/double": "Double"}


async def test_broken_file_is_reported_and_other_plans_stay_usable(published_folder: PublishedFolder) -> None:
    http, folder = published_folder
    write_plan(folder, _plan("Broken", tool="calculater"), "broken.json")
    assert await _titles(http) == {"plan/double": "Double"}
    body = {"model": "plan/broken", "messages": [{"role": "user", "content": "{}"}]}
    message = "the published plan 'broken' cannot be used: broken.json: unknown_tool at /nodes/0/tool"
    for response in (
        await http.get("/v1/models/plan/broken"),
        await http.get("/v1/plans/broken"),
        await http.post("/v1/chat/completions", json=body),
        await http.post("/v1/responses", json={"model": "plan/broken", "input": "{}"}),
        await http.post("/v1/runs", json={"template": "broken"}),
    ):
        assert status_and_code_of(response) == (422, "plan_unusable"), response.text
        assert message in message_of(response)


async def test_problems_of_files_do_not_name_folders_of_the_machine(published_folder: PublishedFolder) -> None:
    http, folder = published_folder

    async def problem(name: str) -> str:
        return message_of(await http.get(f"/v1/models/plan/{name}"))

    nodes = [{"id": "a", "plan": "parts/lost.json"}, {"id": "b", "plan": "parts/broken.json"}]
    write_plan(folder, {"plan": 1, "nodes": nodes}, "outer.json")
    for name in ("syntax.json", "parts/broken.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{", encoding="utf-8")
    problems = [await problem(name) for name in ("syntax", "outer", "other")]
    for path in folder.glob("*.json"):
        path.unlink()
    problems.append(await problem("double"))
    assert [str(folder.parent) in text for text in problems] == [False] * 4
    assert "syntax.json" in problems[0]
    assert "there is no file parts/lost.json" in problems[1]
    assert "the --plans folder has no file other.json, other.yaml or other.yml" in problems[2]
    assert "the template folder plans has no file that ends with .json, .yaml, .yml" in problems[3]
