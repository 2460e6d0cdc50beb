"""Checks of plans that callers send: large plans are checked one at a time per API key, in a separate process."""

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from dagwright.core.errors import MAX_PROBLEMS, TOO_MANY_PROBLEMS, PlanInvalid
from dagwright.interfaces.http.disconnects import await_unless_disconnected
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.plan_checks import IN_PROCESS_BYTES, PlanChecks
from dagwright.process.process_pool import ProcessLost
from tests.support.eventually import eventually
from tests.unit.interfaces.http.conftest import message_of, status_and_code_of

LARGE_BYTES = IN_PROCESS_BYTES + 1


@dataclass
class FakePool:
    """Fake process pool, whose calls wait for `release_event` or raise `error`."""

    error: Exception | None = None
    release_event: asyncio.Event = field(default_factory=asyncio.Event)
    running_count: int = 0
    max_running_count: int = 0
    cancelled_count: int = 0

    async def run(self, function: Any, *args: Any) -> Any:
        if self.error is not None:
            raise self.error
        self.running_count += 1
        self.max_running_count = max(self.max_running_count, self.running_count)
        try:
            await self.release_event.wait()
        except asyncio.CancelledError:
            self.cancelled_count += 1
            raise
        finally:
            self.running_count -= 1
        return function(*args)


@pytest.fixture
def pool() -> FakePool:
    return FakePool()


@pytest.fixture
def checks(pool: FakePool) -> PlanChecks:
    return PlanChecks(cast("Any", pool))


async def test_large_checks_of_a_key_run_one_at_a_time_and_too_many_are_rejected(
    checks: PlanChecks, pool: FakePool
) -> None:
    tasks = [asyncio.create_task(checks.run("ann", LARGE_BYTES, len, [1])) for _ in range(5)]
    await eventually(lambda: pool.running_count == 1)
    with pytest.raises(ApiError) as error:
        await checks.run("ann", LARGE_BYTES, len, [1])
    assert (error.value.status, error.value.headers["Retry-After"]) == (429, "2")
    task_of_bob = asyncio.create_task(checks.run("bob", LARGE_BYTES, len, [1, 2]))
    await eventually(lambda: pool.running_count == 2)
    pool.release_event.set()
    assert await asyncio.gather(*tasks, task_of_bob) == [1] * 5 + [2]
    assert (pool.max_running_count, checks._locks) == (2, {})


async def test_any_number_of_small_checks_may_wait_and_none_uses_a_process(checks: PlanChecks, pool: FakePool) -> None:
    pool.error = AssertionError("a small plan needs no process")
    assert await asyncio.gather(*(checks.run(None, IN_PROCESS_BYTES, len, "abc") for _ in range(50))) == [3] * 50


@pytest.mark.parametrize(
    ("error", "message"), [(TimeoutError(), "longer than 60 s"), (ProcessLost(), "too much memory")]
)
async def test_check_over_its_time_or_memory_limit_is_reported_as_too_large(
    checks: PlanChecks, pool: FakePool, error: Exception, message: str
) -> None:
    pool.error = error
    with pytest.raises(PlanInvalid, match=message) as rejection:
        await checks.run("ann", LARGE_BYTES, len, "abc")
    assert rejection.value.problems[0].code == "too_large"
    pool.error = None
    pool.release_event.set()
    assert await checks.run("ann", LARGE_BYTES, len, "abc") == 3


async def test_check_ends_when_its_client_disconnects(checks: PlanChecks, pool: FakePool) -> None:
    async def receive() -> dict[str, Any]:
        await eventually(lambda: pool.running_count == 1)
        return {"type": "http.disconnect"}

    request = cast("Any", SimpleNamespace(receive=receive))
    assert await await_unless_disconnected(checks.run("ann", LARGE_BYTES, len, "abc"), request) is None
    assert (pool.running_count, pool.cancelled_count) == (0, 1)


async def _check_plan(http: httpx.AsyncClient, plan: Any) -> Any:
    response = await http.post("/v1/plans/check", json={"plan": plan})
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.waits
async def test_check_of_a_large_plan_stops_after_a_hundred_problems(http: httpx.AsyncClient) -> None:
    for plan in (
        {str(number): 0 for number in range(2_000)} | {"nodes": [{"id": "a", "tool": "calculator"}]},
        {"plan": 1, "nodes": [{"idd": number} for number in range(500)]},
        "nodes:\n" + "".join(f"- {{id: n{number}, tol: calculator}}\n" for number in range(500)),
    ):
        document = await _check_plan(http, plan)
        *errors, last_error = document["errors"]
        assert (document["status"], len(errors), last_error["code"]) == ("invalid", MAX_PROBLEMS, TOO_MANY_PROBLEMS)
        assert {error["code"] for error in errors} == {"invalid_field"}
        assert ("there are more problems" in last_error["message"], len(json.dumps(document)) < 60_000) == (True, True)


async def test_body_with_a_plan_over_the_size_limit_is_rejected(http: httpx.AsyncClient) -> None:
    response = await http.post("/v1/plans/check", json={"plan": "x" * 8 * 1024 * 1024})
    assert status_and_code_of(response) == (413, "request_too_large")
    assert "8,388,608 bytes" in message_of(response)


async def test_sub_plan_by_name_is_a_published_plan_and_never_a_file(http: httpx.AsyncClient, tmp_path: Path) -> None:
    (tmp_path / "part.yaml").write_text("nodes: [{id: a, tool: calculator, arguments: {expression: '1'}}]")

    def plan_with_sub_plan(name: str) -> Any:
        return {"plan": 1, "nodes": [{"id": "sub", "plan": name, "arguments": {"number": 2}}]}

    text = json.dumps(plan_with_sub_plan("double"))
    for plan in (plan_with_sub_plan("double"), plan_with_sub_plan("double.json"), text):
        assert (await _check_plan(http, plan))["status"] == "valid"
    hints_by_name = {"part.yaml": None, str(tmp_path / "part.yaml"): None, "doubel": "did you mean 'double'?"}
    for name, hint in hints_by_name.items():
        [error] = (await _check_plan(http, plan_with_sub_plan(name)))["errors"]
        assert (error["code"], error["pointer"], error["node_id"]) == ("unreadable", "/nodes/0/plan", "sub")
        assert error["message"] == (
            f"the sub-plan {name!r} is a file name, but files of clients are not read: write the sub-plan itself into "
            "the node (plan: {nodes: […]}), or name a published plan: double"
        )
        assert error["hint"] == hint
    response = await http.post("/v1/runs", json={"plan": plan_with_sub_plan("part.yaml")})
    assert (response.status_code, "name a published plan: double" in response.text) == (400, True)
