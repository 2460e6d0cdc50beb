"""Generated requests to every endpoint of a real gateway: no 500, nothing that hangs, answers as the document says.

`EXAMPLES=500 SEED=7 pytest tests/fuzz/test_gateway.py` makes more of them than the tests do, and others.
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

from dagwright.testing import ANY_NUMBER, ModelServer, ScriptNotFollowed, json_text, step
from tests.e2e.conftest import calculation
from tests.support.eventually import eventually
from tests.support.gateway import Gateway, gateway
from tests.support.server import LiveServer
from tests.unit.interfaces.http.test_document import DOCUMENT, OPERATIONS

pytestmark = [pytest.mark.server, pytest.mark.slow]

EXAMPLES = int(os.environ.get("EXAMPLES", "20"))
"""Requests to each operation, of each of two kinds: such as the document lets through, and others."""
SEED = int(os.environ.get("SEED", "0"))
"""The same one makes the same requests."""
ANSWER_S = 30.0
"""By when an answer has to be whole: a longer request counts as hanging."""
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)

ASKING = {
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
PLANNED = {"nodes": [{"id": "sum", "tool": "calculator", "arguments": {"expression": "1 + 2"}}]}
SCRIPT = (
    step(json_text(PLANNED), metadata={"purpose": "plan"}, times=ANY_NUMBER),
    step(json_text({"answer": "It is 3.", "missing": []}), metadata={"purpose": "answer"}, times=ANY_NUMBER),
    step(json_text({"route": "orchestration"}), metadata={"purpose": "route"}, times=ANY_NUMBER),
    step("Three.", times=ANY_NUMBER),
)
MODELS = ["small", "plan/ask", "profile/plan", "agent/none"]


@dataclass(frozen=True, slots=True)
class Served:
    """A gateway with something of everything: what ids in addresses may be."""

    live: Gateway
    waiting: str
    ended: str
    session: str

    def places(self, path: str) -> dict[str, list[str]]:
        """Return additional values for the parameters of a path."""
        # A stream of a waiting run stays open for as long as the run waits.
        runs = [self.ended] if path.endswith("/events") else [self.waiting, self.ended]
        nodes = ["double", "check", "broken", "check[0]", "none"]
        response = f"resp_{self.ended}.cGxhbi9hc2s"
        return {
            **{"run_id": runs, "session_id": [self.session], "node_id": nodes, "model": MODELS},
            **{"response_id": [response], "name": ["ask"]},
        }


@pytest.fixture(scope="module")
async def fuzzed_gateway(server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    # OpenAI's server would reject some requests that are passed on to the model; this server reports them at its end.
    with suppress(ScriptNotFollowed):
        async with (
            ModelServer(*SCRIPT) as models,
            gateway(
                server, folder=tmp_path_factory.mktemp("fuzz"), plans={"ask": ASKING}, service=models.base_url
            ) as live,
        ):
            session = f"s-{uuid4().hex[:8]}"
            message = {"role": "user", "content": '{"number": 21}'}
            body = {"model": "plan/ask", "messages": [message], "session_id": session}
            ended = (await live.post("/v1/chat/completions", body)).json()["dagwright"]["run_id"]
            await live.post(f"/v1/runs/{ended}/feedback", {"answer": "yes"})
            run = {"template": "ask", "inputs": {"number": 21}}
            waiting = (await live.post("/v1/runs", run)).json()["run_id"]

            async def is_ended() -> bool:
                return (await live.http.get(f"/v1/runs/{ended}")).json()["status"] not in ("running", "waiting")

            await eventually(is_ended)
            yield Served(live, waiting, ended, session)


def kinds() -> Iterator[Any]:
    for name, operation in OPERATIONS.items():
        takes_something = "requestBody" in operation or operation.get("parameters")
        for mode in GenerationMode if takes_something else [GenerationMode.POSITIVE]:
            yield pytest.param(name, mode, id=f"{name} {mode.value}")


@pytest.mark.parametrize(("name", "mode"), list(kinds()))
async def test_generated_requests_are_answered_as_the_document_describes(
    name: str, mode: GenerationMode, fuzzed_gateway: Served, caplog: pytest.LogCaptureFixture
) -> None:
    method, path = name.split(" ")
    operation = SCHEMA[path][method]
    known = fuzzed_gateway.places(path)

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), choice=st.data())
    def send_case(case: Case[Any], choice: st.DataObject) -> None:
        for parameter in case.path_parameters or {}:
            # Endpoints without names here are tested with generated values only.
            if parameter in known and choice.draw(st.integers(0, 3)):
                case.path_parameters[parameter] = choice.draw(st.sampled_from(known[parameter]))
        if isinstance(case.body, dict) and "model" in case.body and choice.draw(st.integers(0, 3)):
            case.body["model"] = choice.draw(st.sampled_from(MODELS))
        answer = case.call(base_url=fuzzed_gateway.live.url, timeout=ANSWER_S)
        case.validate_response(answer, checks=CHECKS)

    with caplog.at_level(logging.ERROR):
        # The gateway answers in the loop of this test.
        await asyncio.to_thread(send_case)
    assert [record.getMessage() for record in caplog.records] == []
