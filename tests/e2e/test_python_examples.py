"""The examples in Python, as programs on the shared server."""

import json
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.command import ROOT, CommandLine, kill_process, read_line_with, stop_process, wait_for_exit
from tests.support.eventually import eventually
from tests.support.ports import free_port

pytestmark = pytest.mark.server

EXAMPLES = ROOT / "examples" / "python"


async def test_hello_example_prints_the_output_and_the_node_states(commands: CommandLine) -> None:
    result = await wait_for_exit(await commands.start(program=("examples/python/hello.py",)))
    result.check_success()
    expected = ["{'lamps': 4, 'order': 'ordered 20 x lamp'}", "stock: completed", "order: completed"]
    assert result.stdout.splitlines() == expected


async def test_killed_etl_example_continues_and_loads_the_approved_orders(
    commands: CommandLine, tmp_path: Path
) -> None:
    api_process = await commands.start(program=("examples/python/orders_api.py",))
    assert api_process.stdout is not None
    address = (await api_process.stdout.readline()).decode().strip()
    database = tmp_path / "orders.db"
    options = ("--api", address, "--database", str(database), "--id", f"etl-{tmp_path.name}")
    first_process = await commands.start(*options, program=("examples/python/etl.py",))
    await read_line_with(first_process, "feedback.requested approve")
    await kill_process(first_process)
    second_result = await wait_for_exit(await commands.start(*options, "--yes", program=("examples/python/etl.py",)))
    await kill_process(api_process)
    assert (second_result.code, second_result.stdout.splitlines()[-1]) == (0, f"10 rows in {database}")
    rows = sqlite3.connect(database).execute("select id, cents from orders order by cents limit 2").fetchall()
    assert rows == [("o-0", 1000), ("o-1", 1250)]


async def test_an_agent_answers_from_the_notes_of_an_mcp_server(commands: CommandLine) -> None:
    result = await wait_for_exit(await commands.start(program=("examples/python/mcp_agent.py",)))
    result.check_success()
    assert result.stdout.splitlines()[-1] == "Steep green tea at 80 degrees for two minutes (note: tea)."


async def test_fastapi_example_starts_runs_streams_events_and_accepts_answers(commands: CommandLine) -> None:
    port = free_port()
    arguments = ("--app-dir", str(EXAMPLES), "fastapi_app:app", "--port", str(port))
    server = await commands.start(*arguments, program=("-m", "uvicorn"))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        await eventually(lambda: _responds(http))
        run_id = (await http.post("/refills", json={"item": "lamp", "amount": 20})).json()["run_id"]
        cursor = await _cursor_of_event(http, run_id, "feedback.requested")
        answer = {"approved": True, "reason": "low"}
        response = await http.post(f"/refills/{run_id}/approval", json=answer)
        assert response.status_code == httpx.codes.OK
        later_events = [event async for event in _read_events(http, run_id, cursor=cursor)]
        assert [each["type"] for each in later_events][-1] == "run.completed"
        assert "feedback.requested" not in [each["type"] for each in later_events]
        status = (await http.get(f"/refills/{run_id}")).json()
        assert status == {"run_id": run_id, "status": "completed", "output": "ordered 20 x lamp"}
        assert (await http.post(f"/refills/{run_id}/approval", json=answer)).status_code == httpx.codes.CONFLICT
        rejected_run_id = (await http.post("/refills", json={"item": "lamp", "amount": 9})).json()["run_id"]
        await _cursor_of_event(http, rejected_run_id, "feedback.requested")
        await http.post(f"/refills/{rejected_run_id}/approval", json={"approved": False})
        await _cursor_of_event(http, rejected_run_id, "run.completed")
        assert (await http.get(f"/refills/{rejected_run_id}")).json()["output"] is None
        for path in ("/refills/none", "/refills/none/events"):
            assert (await http.get(path)).status_code == httpx.codes.NOT_FOUND
    await stop_process(server)


async def _responds(http: httpx.AsyncClient) -> bool:
    with suppress(httpx.ConnectError):
        return (await http.get("/openapi.json")).is_success
    return False


async def _cursor_of_event(http: httpx.AsyncClient, run_id: str, event_type: str) -> str:
    async for each in _read_events(http, run_id):
        if each["type"] == event_type:
            return str(each["cursor"])
    raise AssertionError(event_type)


async def _read_events(
    http: httpx.AsyncClient, run_id: str, *, cursor: str | None = None
) -> AsyncIterator[dict[str, Any]]:
    headers: Mapping[str, str] = {} if cursor is None else {"Last-Event-ID": cursor}
    async with http.stream("GET", f"/refills/{run_id}/events", headers=headers) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


@pytest.mark.slow
@pytest.mark.fresh
async def test_notebook_runs_from_top_to_bottom(commands: CommandLine, tmp_path: Path) -> None:
    executed_notebook = tmp_path / "notebook.ipynb"
    arguments = ("execute", str(EXAMPLES / "notebook.ipynb"), "--output", str(executed_notebook))
    result = await wait_for_exit(await commands.start(*arguments, program=("-m", "jupyter")))
    result.check_success()
    cells = [cell for cell in json.loads(executed_notebook.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    texts = ["".join(output["data"].get("text/plain", "")) for output in outputs if "data" in output]
    assert texts[1:3] == ["[47.6, 368.9]", "[47.6]"]
    drawings = [output["data"] for output in outputs if "image/svg+xml" in output.get("data", {})]
    assert len(drawings) == 2
