"""The listed model IDs, and the part of the gateway that handles a request."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from dagwright.interfaces.http.context import GatewayContext
from dagwright.interfaces.http.conversation import Conversation, FeedbackAnswer
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.model_routes import retrieve_model
from dagwright.interfaces.http.request_fields import RoutingMode
from dagwright.interfaces.http.routing import route_by_rules
from dagwright.interfaces.http.targets import Kind, Target, profiles_of, target_of
from dagwright.settings import Settings
from dagwright.tools import ToolRegistry
from dagwright.toolset.toolset import load_toolset
from tests.support.rounds import WorkerTools

DIRECT, ORCHESTRATION, AUTO = RoutingMode.DIRECT, RoutingMode.ORCHESTRATION, RoutingMode.AUTO


@pytest.mark.parametrize(
    ("mode", "kind", "has_functions", "expected_mode"),
    [
        (None, "model", False, DIRECT),
        (DIRECT, "model", False, DIRECT),
        (ORCHESTRATION, "model", False, ORCHESTRATION),
        (ORCHESTRATION, "model", True, ORCHESTRATION),
        (AUTO, "model", False, AUTO),
        (AUTO, "model", True, DIRECT),
        (None, "plan", False, ORCHESTRATION),
        (AUTO, "plan", False, ORCHESTRATION),
        (ORCHESTRATION, "agent", False, ORCHESTRATION),
        (AUTO, "profile", True, ORCHESTRATION),
    ],
)
def test_routing_mode_determines_the_handler(
    mode: RoutingMode | None, kind: Kind, has_functions: bool, expected_mode: RoutingMode
) -> None:
    assert route_by_rules(mode, Target(kind, "x"), Conversation("Go."), has_functions=has_functions) is expected_mode


@pytest.mark.parametrize("mode", [None, DIRECT, ORCHESTRATION, AUTO])
def test_answers_go_to_their_run_and_other_results_to_the_model(mode: RoutingMode | None) -> None:
    conversation = Conversation("", answers=[FeedbackAnswer("call_1", "run-1", "yes")])
    assert route_by_rules(mode, Target("model", "small"), conversation, has_functions=True) is ORCHESTRATION
    if mode is not ORCHESTRATION:
        conversation = Conversation("", has_other_results=True)
        assert route_by_rules(mode, Target("model", "small"), conversation, has_functions=False) is DIRECT


@pytest.mark.parametrize(
    ("mode", "kind", "conversation"),
    [
        (DIRECT, "plan", Conversation("Go.")),
        (ORCHESTRATION, "model", Conversation("", has_other_results=True)),
        (None, "plan", Conversation("", has_other_results=True)),
        (AUTO, "profile", Conversation("", has_other_results=True)),
        (None, "model", Conversation("", answers=[FeedbackAnswer("call_1", "run-1", "yes")], has_other_results=True)),
    ],
)
def test_mode_that_contradicts_the_target_or_the_conversation_is_rejected(
    mode: RoutingMode | None, kind: Kind, conversation: Conversation
) -> None:
    with pytest.raises(ApiError) as error:
        route_by_rules(mode, Target(kind, "x"), conversation, has_functions=False)
    assert error.value.status == 400


def _context(folder: Path, worker_tools: ToolRegistry | None = None) -> GatewayContext:
    settings = Settings(state_dir=folder)
    toolset = load_toolset(settings)
    toolset = toolset if worker_tools is None else replace(toolset, user_tools=worker_tools)
    return cast("GatewayContext", SimpleNamespace(settings=settings, toolset=toolset, templates={}))


async def test_profile_rounds_is_listed_only_with_worker_tools(tmp_path: Path) -> None:
    context_without_tools, context_with_tools = _context(tmp_path), _context(tmp_path, WorkerTools().registry())
    assert profiles_of(context_without_tools) == ["plan", "intents"]
    assert profiles_of(context_with_tools) == ["plan", "intents", "rounds"]
    with pytest.raises(ApiError, match="rounds requires worker tools in --tools") as error:
        await retrieve_model("profile/rounds", context_without_tools)
    assert (error.value.status, error.value.code) == (404, "model_not_found")
    assert target_of(context_with_tools, "profile/rounds") == Target("profile", "rounds")
    response = await retrieve_model("profile/rounds", context_with_tools)
    assert json.loads(bytes(response.body))["id"] == "profile/rounds"


@pytest.mark.parametrize(
    ("model", "hint"),
    [("profile/plans", "did you mean 'profile/plan'"), ("profile/zzzzzzzz", "available are plan, intents")],
)
def test_unknown_profile_gets_a_hint(tmp_path: Path, model: str, hint: str) -> None:
    with pytest.raises(ApiError, match=hint):
        target_of(_context(tmp_path), model)
