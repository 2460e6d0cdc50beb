"""Runs that the gateway starts for requests."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dagwright.client.starts import StartRequest
from dagwright.core.errors import PlanInvalid
from dagwright.interfaces.http.callers import Caller
from dagwright.interfaces.http.context import GatewayContext
from dagwright.interfaces.http.conversation import Conversation
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.examples import PUBLISHED_PLAN
from dagwright.interfaces.http.request_fields import GatewayOptions
from dagwright.interfaces.http.run_preparation import AnswerSettings, plan_inputs, prepare_run_start
from dagwright.interfaces.http.structured_output import OutputForm
from dagwright.interfaces.http.targets import Target
from dagwright.planning.model_calls.model_requests import ModelConfig
from dagwright.planning.plan_and_execute.goal_spec import goal_from_json
from dagwright.planning.rounds.rounds_spec import QUESTION_TIMEOUT_S
from dagwright.plans.templates import Template
from dagwright.settings import Settings
from dagwright.tools import ToolRegistry
from dagwright.toolset.toolset import load_toolset
from tests.support.rounds import WorkerTools
from tests.support.templates import load_templates

_NO_OPTIONS, _DEFAULT_SETTINGS = GatewayOptions(), AnswerSettings(ModelConfig())


def _context(folder: Path, worker_tools: ToolRegistry | None = None, templates: Any = None) -> GatewayContext:
    toolset = load_toolset(Settings(state_dir=folder))
    toolset = toolset if worker_tools is None else replace(toolset, user_tools=worker_tools)
    return cast("GatewayContext", SimpleNamespace(toolset=toolset, templates=templates or {}, caller=Caller("me")))


def _run_start(
    context: GatewayContext,
    target: Target,
    conversation: Conversation,
    options: GatewayOptions = _NO_OPTIONS,
    settings: AnswerSettings = _DEFAULT_SETTINGS,
) -> Any:
    return prepare_run_start(context, target, conversation, options=options, settings=settings)


def _start_request(folder: Path, target: Target, options: GatewayOptions) -> StartRequest:
    start = _run_start(_context(folder, WorkerTools().registry()), target, Conversation("Compare."), options)
    return cast("StartRequest", start.prepare(None))


def test_request_sets_rounds_and_timeouts(tmp_path: Path) -> None:
    target = Target("profile", "rounds")
    options = GatewayOptions(max_rounds=4, worker_timeout_s=120, deadline_s=900)
    start_request = _start_request(tmp_path, target, options)
    assert start_request.plan.extender is not None
    assert (start_request.plan.extender["max_rounds"], start_request.plan.extender["worker_timeout_s"]) == (4, 120)
    assert start_request.plan.deadline_s == start_request.options.deadline_s == 900
    assert start_request.options.owner == "me"
    # The source includes these options, so a request with other options does not count as a repetition.
    assert (start_request.source["max_rounds"], start_request.source["worker_timeout_s"]) == (4, 120)
    default_start = _start_request(tmp_path, target, GatewayOptions())
    assert (default_start.plan.deadline_s, default_start.options.deadline_s) == (QUESTION_TIMEOUT_S, None)


def test_only_the_profile_rounds_accepts_max_rounds_and_worker_timeout(tmp_path: Path) -> None:
    target = Target("profile", "plan")
    assert _start_request(tmp_path, target, GatewayOptions(deadline_s=900)).options.deadline_s == 900
    for options, param in (
        (GatewayOptions(max_rounds=4), "max_rounds"),
        (GatewayOptions(worker_timeout_s=9.0), "worker_timeout"),
    ):
        with pytest.raises(ApiError, match="profile/plan does not run in rounds") as error:
            _start_request(tmp_path, target, options)
        assert (error.value.status, error.value.param) == (400, param)


def _template(**inputs: Any) -> Template:
    return cast("Template", SimpleNamespace(name="double", checked=SimpleNamespace(inputs=inputs)))


def test_single_input_is_the_message_itself() -> None:
    number, text = {"type": "integer"}, {"type": "string"}
    assert plan_inputs(_template(number=number), "21", inputs=None) == {"number": 21}
    assert plan_inputs(_template(some={"type": "array"}), "[1, 2]", inputs=None) == {"some": [1, 2]}
    assert plan_inputs(_template(words=text), "21", inputs=None) == {"words": "21"}
    assert plan_inputs(_template(number=number), '{"number": 21}', inputs=None) == {"number": 21}
    for template, message in ((_template(number=number), "many"), (_template(a=number, b=number), "21")):
        with pytest.raises(ApiError, match="as a JSON object in the message"):
            plan_inputs(template, message, inputs=None)


def test_request_text_of_a_turn_has_the_title_and_inputs_of_the_plan(tmp_path: Path) -> None:
    (tmp_path / "double.json").write_text(json.dumps(PUBLISHED_PLAN["plan"]), encoding="utf-8")
    declarations = load_toolset(Settings(state_dir=tmp_path)).declarations()
    context, target = _context(tmp_path, templates=load_templates(tmp_path, declarations)), Target("plan", "double")

    def request_text(text: str, **options: Any) -> str:
        return str(_run_start(context, target, Conversation(text), GatewayOptions(**options)).request)

    title = "(the plan Double a number)"
    assert request_text('{"number": 1}') == f'{title} {{"number": 1}}'
    assert request_text("Go.", inputs={"number": 2}) == f'{title} {{"number": 2}}'
    assert request_text("") == title
    with pytest.raises(PlanInvalid):
        request_text(json.dumps({"number": 1, "more": "x" * 100_000}))
    assert len(request_text('{"number": ' + " " * 100_000 + "1}")) < 1_000


@pytest.mark.parametrize("profile", ["plan", "intents"])
def test_title_of_a_run_is_the_message_of_the_user(tmp_path: Path, profile: str) -> None:
    conversation = Conversation("List the files here.", instructions="You are ShellGPT, an assistant.")
    start_request = _run_start(_context(tmp_path), Target("profile", profile), conversation).prepare(None)
    assert start_request.plan.title == "List the files here."
    assert start_request.source["goal"] == "You are ShellGPT, an assistant.\n\nList the files here."


def test_run_has_the_output_schema_of_its_request(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    settings = AnswerSettings(ModelConfig(), OutputForm(schema, "response_format"))
    context, target, conversation = _context(tmp_path), Target("profile", "plan"), Conversation("Who?")
    request = _run_start(context, target, conversation, settings=settings).prepare(None)
    assert goal_from_json(request.plan.extender).output_schema == request.source["output_schema"] == schema
    # Runs that started before this field existed have a goal without the field.
    request = _run_start(context, target, conversation).prepare(None)
    assert "output_schema" not in {**(request.plan.extender or {}), **request.source}
