"""Generated requests to every endpoint of a real gateway: no status 500, no timeout, responses match the schema.

`EXAMPLES=500 SEED=7 pytest tests/fuzz/test_gateway.py` sends more and different requests.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dagwright.testing import ANY_NUMBER, ModelServer, ScriptNotFollowed, When, json_text, step
from tests.e2e.conftest import calculation
from tests.support.eventually import eventually
from tests.support.gateway import Gateway, gateway
from tests.support.server import LiveServer
from tests.unit.interfaces.http.test_document import OPENAPI_DOCUMENT, OPERATIONS

pytestmark = [pytest.mark.server, pytest.mark.slow]

EXAMPLES = int(os.environ.get("EXAMPLES", "20"))
"""Number of valid requests and of invalid requests to each operation."""
SEED = int(os.environ.get("SEED", "0"))
"""Each seed always gives the same requests."""
RESPONSE_TIMEOUT_S = 30.0
"""Maximum time until a response is complete."""
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
SCHEMA = schemathesis.openapi.from_dict(OPENAPI_DOCUMENT)

PLAN_WITH_APPROVAL = {
    "plan": 1,
    "title": "Publish a number",
    "inputs": {"number": {"type": "integer"}},
    "nodes": [
        calculation("double", "{{PLACEHOLDER_number}} * 2"),
        calculation("broken", "1 / 0"),
        {"id": "check", "depends_on": ["double"], "human": {"type": "APPROVAL", "prompt": "Publish?"}},
    ],
    "output": "{{double.result}}",
}
MODEL_PLAN = {"nodes": [{"id": "sum", "tool": "calculator", "arguments": {"expression": "1 + 2"}}]}
SCRIPT = (
    step(json_text(MODEL_PLAN), when=When(metadata={"purpose": "plan"}), times=ANY_NUMBER),
    step(json_text({"answer": "It is 3.", "missing": []}), when=When(metadata={"purpose": "answer"}), times=ANY_NUMBER),
    step(json_text({"route": "orchestration"}), when=When(metadata={"purpose": "route"}), times=ANY_NUMBER),
    step("Three.", times=ANY_NUMBER),
)
MODELS = ["small", "plan/ask", "profile/plan", "agent/none"]


@dataclass(frozen=True, slots=True)
class FuzzedGateway:
    """A gateway, and the IDs of a waiting run, an ended run and a session, for use in requests."""

    gateway: Gateway
    waiting_run_id: str
    ended_run_id: str
    session_id: str

    def parameter_values(self, path: str) -> dict[str, list[str]]:
        """Return known values for the parameters of a path: parameter -> values."""
        # A stream of a waiting run stays open for as long as the run waits.
        runs = [self.ended_run_id] if path.endswith("/events") else [self.waiting_run_id, self.ended_run_id]
        nodes = ["double", "check", "broken", "check[0]", "none"]
        response = f"resp_{self.ended_run_id}.cGxhbi9hc2s"
        return {
            **{"run_id": runs, "session_id": [self.session_id], "node_id": nodes, "model": MODELS},
            **{"response_id": [response], "name": ["ask"]},
        }


@pytest.fixture(scope="module")
async def fuzzed_gateway(server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FuzzedGateway]:
    # The gateway forwards some requests that a real model service would reject. At the end of the block, `ModelServer`
    # raises `ScriptNotFollowed` for these requests.
    with suppress(ScriptNotFollowed):
        async with (
            ModelServer(*SCRIPT) as model_server,
            gateway(
                server,
                folder=tmp_path_factory.mktemp("fuzz"),
                plans={"ask": PLAN_WITH_APPROVAL},
                provider_url=model_server.base_url,
            ) as running_gateway,
        ):
            session_id = f"s-{uuid4().hex[:8]}"
            message = {"role": "user", "content": '{"number": 21}'}
            body = {"model": "plan/ask", "messages": [message], "session_id": session_id}
            ended_run_id = (await running_gateway.post("/v1/chat/completions", body)).json()["dagwright"]["run_id"]
            await running_gateway.post(f"/v1/runs/{ended_run_id}/feedback", {"answer": "yes"})
            run_body = {"template": "ask", "inputs": {"number": 21}}
            waiting_run_id = (await running_gateway.post("/v1/runs", run_body)).json()["run_id"]

            async def has_ended() -> bool:
                return (await running_gateway.http.get(f"/v1/runs/{ended_run_id}")).json()["status"] not in (
                    "running",
                    "waiting",
                )

            await eventually(has_ended)
            yield FuzzedGateway(running_gateway, waiting_run_id, ended_run_id, session_id)


def operations_and_modes() -> Iterator[Any]:
    for name, operation in OPERATIONS.items():
        has_input = "requestBody" in operation or operation.get("parameters")
        for mode in GenerationMode if has_input else [GenerationMode.POSITIVE]:
            yield pytest.param(name, mode, id=f"{name} {mode.value}")


@pytest.mark.parametrize(("name", "mode"), list(operations_and_modes()))
async def test_responses_to_generated_requests_match_the_api_document(
    name: str, mode: GenerationMode, fuzzed_gateway: FuzzedGateway, caplog: pytest.LogCaptureFixture
) -> None:
    method, path = name.split(" ")
    operation = SCHEMA[path][method]
    known_values = fuzzed_gateway.parameter_values(path)

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
    def send_case(case: Case[Any], data: st.DataObject) -> None:
        for parameter in case.path_parameters or {}:
            # A parameter without known values keeps its generated value.
            if parameter in known_values and data.draw(st.integers(0, 3)):
                case.path_parameters[parameter] = data.draw(st.sampled_from(known_values[parameter]))
        if isinstance(case.body, dict) and "model" in case.body and data.draw(st.integers(0, 3)):
            case.body["model"] = data.draw(st.sampled_from(MODELS))
        response = case.call(base_url=fuzzed_gateway.gateway.url, timeout=RESPONSE_TIMEOUT_S)
        case.validate_response(response, checks=CHECKS)

    with caplog.at_level(logging.ERROR):
        # The gateway runs in the event loop of this test, so the requests need a thread.
        await asyncio.to_thread(send_case)
    assert [record.getMessage() for record in caplog.records] == []
