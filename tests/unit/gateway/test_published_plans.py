"""Published plans follow the files of their folder, without a restart."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from dagwright.interfaces.http import create_app, open_desk
from dagwright.plans.templates import TemplateFolder
from dagwright.server import Connection, Server
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset
from tests.unit.gateway.conftest import Away

Served = tuple[httpx.AsyncClient, Path]


def _plan(title: str, tool: str = "calculator") -> str:
    node = {"id": "a", "tool": tool, "arguments": {"expression": "1"}}
    return json.dumps({"plan": 1, "title": title, "nodes": [node]})


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    folder = tmp_path / "plans"
    folder.mkdir()
    (folder / "double.json").write_text(_plan("Double"), encoding="utf-8")
    settings = Settings(state_dir=tmp_path, model="small")
    toolset = load_toolset(settings, ())
    connection = Connection(cast("Any", Away()), Server("nowhere", "default"), frozenset())
    plans = TemplateFolder(folder, toolset.declarations())
    async with open_desk(settings, connection, toolset, plans=plans) as desk:
        transport = httpx.ASGITransport(create_app(desk), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield http, folder


async def _titles(http: httpx.AsyncClient) -> dict[str, str]:
    listed = (await http.get("/v1/models")).json()["data"]
    return {each["id"]: each["dagwright"]["title"] for each in listed if each["id"].startswith("plan/")}


async def test_new_changed_and_removed_files_are_seen_at_once(served: Served) -> None:
    http, folder = served
    assert await _titles(http) == {"plan/double": "Double"}
    (folder / "triple.json").write_text(_plan("Triple"), encoding="utf-8")
    assert await _titles(http) == {"plan/double": "Double", "plan/triple": "Triple"}
    assert (await http.get("/v1/models/plan/triple")).status_code == 200
    (folder / "triple.json").write_text(_plan("Three times"), encoding="utf-8")
    assert (await http.get("/v1/plans/triple")).json()["title"] == "Three times"
    (folder / "triple.json").unlink()
    assert await _titles(http) == {"plan/double": "Double"}


async def test_broken_file_reports_its_problem_and_leaves_the_others_usable(served: Served) -> None:
    http, folder = served
    (folder / "broken.json").write_text(_plan("Broken", tool="calculater"), encoding="utf-8")
    assert await _titles(http) == {"plan/double": "Double"}
    body = {"model": "plan/broken", "messages": [{"role": "user", "content": "{}"}]}
    answers = [
        await http.get("/v1/models/plan/broken"),
        await http.get("/v1/plans/broken"),
        await http.post("/v1/chat/completions", json=body),
        await http.post("/v1/responses", json={"model": "plan/broken", "input": "{}"}),
        await http.post("/v1/runs", json={"template": "broken"}),
    ]
    for answer in answers:
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (422, "plan_unusable"), answer.text
        assert (
            "the published plan 'broken' cannot be used: broken.json: unknown_tool at /nodes/0/tool"
            in (error["message"])
        )


async def test_problems_of_files_do_not_name_folders_of_the_machine(served: Served) -> None:
    http, folder = served
    (folder / "syntax.json").write_text("{", encoding="utf-8")
    parts = {"plan": 1, "nodes": [{"id": "a", "plan": "parts/lost.json"}, {"id": "b", "plan": "parts/broken.json"}]}
    (folder / "outer.json").write_text(json.dumps(parts), encoding="utf-8")
    (folder / "parts").mkdir()
    (folder / "parts" / "broken.json").write_text("{", encoding="utf-8")
    found = {name: (await http.get(f"/v1/models/plan/{name}")).json() for name in ("syntax", "outer")}
    for path in folder.glob("*.json"):
        path.unlink()
    emptied = (await http.get("/v1/models/plan/double")).json()
    assert str(folder.parent) not in json.dumps([found, emptied])
    assert "syntax.json" in found["syntax"]["error"]["message"]
    assert "there is no file parts/lost.json" in found["outer"]["error"]["message"]
    assert "the folder of plans, plans, holds no file" in emptied["error"]["message"]


async def test_name_that_no_file_has_is_reported_as_that(served: Served) -> None:
    http, folder = served
    missing = (await http.get("/v1/models/plan/other")).json()["error"]["message"]
    assert "the folder of --plans has no file other.json, other.yaml or other.yml" in missing
    (folder / "double.json").unlink()
    emptied = (await http.get("/v1/models/plan/double")).json()["error"]["message"]
    assert "holds no file that ends with .json, .yaml, .yml" in emptied
