"""What a request with an invalid field is answered."""

from typing import Any

import pytest

from tests.unit.gateway.conftest import Apart

RESPONSES, RUNS = "/v1/responses", "/v1/runs"
LONG = "x" * 5_000
CUT = "x" * 80 + "…"


@pytest.mark.parametrize(
    ("path", "body", "param", "message"),
    [
        (RESPONSES, {"input": [1]}, "input.0", "input.0: must be an object"),
        (RESPONSES, {"input": 1}, "input", "input: must be a string or a list"),
        (RESPONSES, {"input": {"str": 1}}, "input", "input: must be a string or a list"),
        (RESPONSES, {}, "input", "input: Field required"),
        (RUNS, {"plan": 1}, "plan", "plan: must be an object, a list or a string"),
        (RUNS, {"input": {}}, "input", "unknown field 'input' (did you mean 'inputs'?)"),
        (RUNS, {LONG: 1}, CUT, None),
        (
            "/v1/runs/run-1/pause",
            {"zzz": 1},
            "zzz",
            "unknown field 'zzz'; allowed are reason, by",
        ),
        (RESPONSES, {"model": "m" * 201, "input": "a"}, "model", "model: String should have at most 200 characters"),
    ],
)
async def test_invalid_field_is_named(away: Apart, path: str, body: Any, param: str, message: str | None) -> None:
    answer = await away[0].post(path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, param, "invalid_value")
    assert message in (None, error["message"])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (RUNS, {"template": "double", LONG: 1}),
        (RUNS, {"template": "double", "inputs": {LONG: 1}}),
        (RUNS, {"template": "double", "inputs": {"number": 1}, "policy": {LONG: 1}}),
        (RUNS, {"template": "double", "inputs": {"number": 1}, "deadline": LONG}),
        (f"/v1/{LONG}", {}),
    ],
)
async def test_answer_does_not_repeat_a_long_name(away: Apart, path: str, body: Any) -> None:
    answer = await away[0].post(path, json=body)
    assert answer.status_code in (400, 404)
    assert "x" * 120 not in answer.text
