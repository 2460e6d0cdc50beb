"""Gateway, worker and server are killed in turn under fifty streams: each client has the whole answer once."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from dagwright.interfaces.http.run_preparation import run_id_of_key
from dagwright.testing import ANY_NUMBER, ModelServer, json_text, slow, step
from tests.e2e.conftest import calculation, pause
from tests.support.chaos import QUICK_WORKER, restart, worker_process
from tests.support.eventually import eventually
from tests.support.gateway_process import CompletionClient, EventClient, gateway_process, wait_until_all
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.alone]

RUNS = 8
"""Each is streamed to one client as an answer and to another one as events."""
FIRST = 60
"""Characters of an answer that are written before all is killed; the others come after that."""
ALL_S = 240.0
ANSWER = " ".join(f"Part {number} of the answer." for number in range(20))
PLAN = {"nodes": [pause("rest", "50ms"), calculation("sum", "1 + 2", depends_on=["rest"])]}
ENDED = ("completed", "failed", "skipped", "blocked", "cancelled")
ASKED = {"model": "profile/plan", "messages": [{"role": "user", "content": "What is in all parts?"}]}


def environment(model: ModelServer) -> dict[str, str]:
    return {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "key", "DAGWRIGHT_MODEL": "small"}


def script(released: asyncio.Event) -> list[Any]:
    held = slow(json_text({"answer": ANSWER, "missing": []}), each_s=0.01, held_after=FIRST // 8, released=released)
    return [
        step(json_text(PLAN), metadata={"purpose": "plan"}, times=ANY_NUMBER),
        step(held, metadata={"purpose": "answer"}, times=ANY_NUMBER),
    ]


def count_answer_calls(model: ModelServer) -> int:
    return sum((call.body.get("metadata") or {}).get("purpose") == "answer" for call in model.calls)


async def test_each_client_has_the_whole_answer_once(own_server: LiveServer, folder: Path) -> None:
    released = asyncio.Event()
    async with (
        ModelServer(*script(released)) as model,
        worker_process(own_server.address, folder, environment=environment(model), program=QUICK_WORKER) as worker,
        gateway_process(own_server.address, folder, environment=environment(model)) as gateway,
        asyncio.timeout(ALL_S),
    ):
        keys = [f"stream-{number}" for number in range(RUNS)]
        asking = [CompletionClient(gateway.url, ASKED, key=key) for key in keys]
        watching = [EventClient(gateway.url, run_id_of_key(key)) for key in keys]
        following = asyncio.gather(*(each.follow() for each in asking), *(each.follow() for each in watching))

        # Each is in the middle of its answer whenever something is killed.
        await wait_until_all(asking, lambda each: bool(each.answer))
        await wait_until_all(watching, lambda each: ("sum", "completed") in each.states)
        await gateway.kill()
        await gateway.start()
        await wait_until_all(asking, lambda each: each.streams > 1 and bool(each.answer))
        before = count_answer_calls(model)
        await worker.kill()
        await worker.start_and_serve()
        await eventually(lambda: count_answer_calls(model) >= before + RUNS, timeout_s=90)
        await restart(own_server)
        released.set()
        await following
    assert [each.answer for each in asking] == [ANSWER] * RUNS
    assert [each.runs for each in asking] == [{run_id_of_key(key)} for key in keys]
    for each in watching:
        ended = [(node, status) for node, status in each.states if status in ENDED]
        assert sorted(ended) == sorted({(node, "completed") for node, _ in ended})
        assert {"rest", "sum", "answer"} <= {node for node, _ in ended}
        assert (each.events[-1].content["status"], each.events[-1].content["output"]) == ("completed", ANSWER)
        assert [event.name for event in each.events].count("run.completed") == 1
    # No connection lasted over the kill of its gateway, and none was lost by the other kills.
    assert {each.streams for each in asking} == {2}


async def test_nothing_is_half_done_while_the_server_is_dead(own_server: LiveServer, folder: Path) -> None:
    released = asyncio.Event()
    released.set()
    async with (
        ModelServer(*script(released)) as model,
        worker_process(own_server.address, folder, environment=environment(model)) as worker,
        gateway_process(own_server.address, folder, environment=environment(model)) as gateway,
        httpx.AsyncClient(base_url=gateway.url, timeout=60) as http,
    ):
        started = {"plan": {"plan": 1, **PLAN}}
        requests: dict[str, tuple[str, Any]] = {
            "run": ("/v1/runs", started),
            "whole": ("/v1/chat/completions", ASKED),
            "stream": ("/v1/chat/completions", {**ASKED, "stream": True}),
            "background": ("/v1/responses", {"model": "profile/plan", "input": "All?", "background": True}),
        }

        async def send_request(name: str) -> httpx.Response:
            path, body = requests[name]
            return await http.post(path, json=body, headers={"Idempotency-Key": name})

        await eventually(lambda: '"worker started"' in worker.log)
        await own_server.kill()
        rejected_results = await asyncio.gather(*map(send_request, requests))
        results = await asyncio.gather(
            *(http.get(path) for path in ("/readyz", "/v1/runs", "/v1/runs/run-1", "/v1/runs/run-1/events"))
        )
        await own_server.start()
        there = [(await http.get(f"/v1/runs/{run_id_of_key(name)}")).status_code for name in requests]
        repeated_results = await asyncio.gather(*map(send_request, requests))
    answers = [*rejected_results, *results]
    entries = [(answer.status_code, answer.headers.get("retry-after")) for answer in answers]
    assert entries == [(503, "2")] * len(answers), [answer.text for answer in answers]
    assert there == [404] * len(requests)
    assert [each.status_code for each in repeated_results] == [201, 200, 200, 200]
