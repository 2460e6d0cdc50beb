"""Gateway, worker and server are killed in turn during 16 streams: each client receives the whole answer once."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from dagwright.interfaces.http.run_preparation import run_id_of_key
from dagwright.testing import ANY_NUMBER, ModelServer, When, json_text, slow, step
from tests.e2e.conftest import calculation, wait_node
from tests.support.chaos import SHORT_HEARTBEAT_WORKER, model_environment, restart_server, worker_process
from tests.support.eventually import eventually
from tests.support.gateway_process import CompletionClient, EventClient, gateway_process, wait_until_all
from tests.support.server import LiveServer

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.alone]

RUN_COUNT = 8
"""Each run is streamed to one client as an answer and to another client as events."""
CHARACTERS_BEFORE_KILLS = 60
"""Characters of an answer that the model writes before the kills; it writes the rest afterwards."""
TIMEOUT_S = 240.0
ANSWER = " ".join(f"Part {number} of the answer." for number in range(20))
PLAN = {"nodes": [wait_node("rest", "50ms"), calculation("sum", "1 + 2", depends_on=["rest"])]}
END_STATUSES = ("completed", "failed", "skipped", "blocked", "cancelled")
CHAT_REQUEST = {"model": "profile/plan", "messages": [{"role": "user", "content": "What is in all parts?"}]}


def script(release_event: asyncio.Event) -> list[Any]:
    held_response = slow(
        json_text({"answer": ANSWER, "missing": []}),
        chunk_delay_s=0.01,
        held_after_chunks=CHARACTERS_BEFORE_KILLS // 8,
        release_event=release_event,
    )
    return [
        step(json_text(PLAN), when=When(metadata={"purpose": "plan"}), times=ANY_NUMBER),
        step(held_response, when=When(metadata={"purpose": "answer"}), times=ANY_NUMBER),
    ]


def count_answer_calls(model: ModelServer) -> int:
    return sum((call.body.get("metadata") or {}).get("purpose") == "answer" for call in model.calls)


async def test_each_client_receives_the_whole_answer_once(private_server: LiveServer, folder: Path) -> None:
    release_event = asyncio.Event()
    async with (
        ModelServer(*script(release_event)) as model,
        worker_process(
            private_server.address, folder, environment=model_environment(model), program=SHORT_HEARTBEAT_WORKER
        ) as worker,
        gateway_process(private_server.address, folder, environment=model_environment(model)) as gateway,
        asyncio.timeout(TIMEOUT_S),
    ):
        keys = [f"stream-{number}" for number in range(RUN_COUNT)]
        answer_clients = [CompletionClient(gateway.url, CHAT_REQUEST, key=key) for key in keys]
        event_clients = [EventClient(gateway.url, run_id_of_key(key)) for key in keys]
        streams = asyncio.gather(
            *(client.follow() for client in answer_clients), *(client.follow() for client in event_clients)
        )

        # Each stream is in the middle of its answer at each kill.
        await wait_until_all(answer_clients, lambda client: bool(client.answer))
        await wait_until_all(event_clients, lambda client: ("sum", "completed") in client.node_statuses)
        await gateway.kill()
        await gateway.start()
        await wait_until_all(answer_clients, lambda client: client.stream_count > 1 and bool(client.answer))
        call_count_before_kill = count_answer_calls(model)
        await worker.kill()
        await worker.start_and_wait_until_ready()
        await eventually(lambda: count_answer_calls(model) >= call_count_before_kill + RUN_COUNT, timeout_s=90)
        await restart_server(private_server)
        release_event.set()
        await streams
    assert [client.answer for client in answer_clients] == [ANSWER] * RUN_COUNT
    assert [client.run_ids for client in answer_clients] == [{run_id_of_key(key)} for key in keys]
    for client in event_clients:
        end_statuses = [(node_id, status) for node_id, status in client.node_statuses if status in END_STATUSES]
        assert sorted(end_statuses) == sorted({(node_id, "completed") for node_id, _ in end_statuses})
        assert {"rest", "sum", "answer"} <= {node_id for node_id, _ in end_statuses}
        assert (client.events[-1].content["status"], client.events[-1].content["output"]) == ("completed", ANSWER)
        assert [event.name for event in client.events].count("run.completed") == 1
    # Each client reconnected after the kill of the gateway, and after no other kill.
    assert {client.stream_count for client in answer_clients} == {2}


async def test_requests_in_an_outage_start_nothing_and_succeed_afterwards(
    private_server: LiveServer, folder: Path
) -> None:
    release_event = asyncio.Event()
    release_event.set()
    async with (
        ModelServer(*script(release_event)) as model,
        worker_process(private_server.address, folder, environment=model_environment(model)) as worker,
        gateway_process(private_server.address, folder, environment=model_environment(model)) as gateway,
        httpx.AsyncClient(base_url=gateway.url, timeout=60) as http,
    ):
        run_request = {"plan": {"plan": 1, **PLAN}}
        requests: dict[str, tuple[str, Any]] = {
            "run": ("/v1/runs", run_request),
            "whole": ("/v1/chat/completions", CHAT_REQUEST),
            "stream": ("/v1/chat/completions", {**CHAT_REQUEST, "stream": True}),
            "background": ("/v1/responses", {"model": "profile/plan", "input": "All?", "background": True}),
        }

        async def send_request(name: str) -> httpx.Response:
            path, body = requests[name]
            return await http.post(path, json=body, headers={"Idempotency-Key": name})

        await eventually(lambda: '"worker started"' in worker.log)
        await private_server.kill()
        rejected_responses = await asyncio.gather(*map(send_request, requests))
        read_responses = await asyncio.gather(
            *(http.get(path) for path in ("/readyz", "/v1/runs", "/v1/runs/run-1", "/v1/runs/run-1/events"))
        )
        await private_server.start()
        found_statuses = [(await http.get(f"/v1/runs/{run_id_of_key(name)}")).status_code for name in requests]
        repeated_responses = await asyncio.gather(*map(send_request, requests))
    responses = [*rejected_responses, *read_responses]
    outcomes = [(response.status_code, response.headers.get("retry-after")) for response in responses]
    assert outcomes == [(503, "2")] * len(responses), [response.text for response in responses]
    assert found_statuses == [404] * len(requests)
    assert [response.status_code for response in repeated_responses] == [201, 200, 200, 200]
