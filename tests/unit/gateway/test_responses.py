"""Acts on responses: by whom they are; and results of calls that a response has not made."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dagwright.client import following
from dagwright.history.run_reader import RunClosed
from dagwright.interfaces.http import Desk, responses
from dagwright.interfaces.http.callers import Caller
from dagwright.interfaces.http.feedback_calls import call_id
from dagwright.interfaces.http.response_items import ResponseRef
from tests.support.told_run import RUN, PendingRequestsOf, Step, ToldRun, requests_named, told_gateway


async def test_response_is_cancelled_by_the_owner_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    async def cancel(run: str, actor: Any) -> str:
        told.append((run, actor.by))
        raise RunClosed(run)

    async def own(run: str) -> str:
        return run

    async def now(*_: Any) -> dict[str, Any]:
        return {}

    monkeypatch.setattr(responses, "_now", now)
    steering = SimpleNamespace(cancel=cancel)
    desk = SimpleNamespace(own=own, steering=steering, starting=[], caller=Caller("ann", frozenset()))
    await responses.cancel(ResponseRef("run-1", "plan/ask").id, cast(Desk, desk))
    assert told == [("run-1", "ann")]


@pytest.mark.parametrize("call", ["zzz", call_id(requests_named(["check"])[0], run="run-2")])
@pytest.mark.parametrize("stream", [False, True])
async def test_result_of_a_call_that_the_response_before_did_not_make_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str, *, stream: bool
) -> None:
    monkeypatch.setattr(following, "PendingRequests", PendingRequestsOf)
    run = ToldRun((Step(3, {}, status="waiting", requests=requests_named(["check"])),), (), "")
    result = {"type": "function_call_output", "call_id": call, "output": "yes"}
    body = {"model": "small", "previous_response_id": ResponseRef(RUN, "small").id, "input": [result], "stream": stream}
    async with told_gateway(run, tmp_path) as http:
        answer = await http.post("/v1/responses", json=body)
        # One that was answered elsewhere meanwhile is passed over.
        result["call_id"] = call_id(requests_named(["gone"])[0], run=RUN)
        later = await http.post("/v1/responses", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unknown_tool_call")
    assert later.status_code == 200
