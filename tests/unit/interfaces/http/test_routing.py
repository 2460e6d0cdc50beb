"""Which model ids there are, and which part of the gateway answers a request."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from dagwright.interfaces.http import Desk
from dagwright.interfaces.http.bodies import RoutingMode
from dagwright.interfaces.http.conversation import Conversation, GivenAnswer
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.model_list import retrieve_model
from dagwright.interfaces.http.routing import decided
from dagwright.interfaces.http.targets import Kind, Target, profiles_of, target_of
from dagwright.settings import Settings
from dagwright.tools import ToolRegistry
from dagwright.toolset.toolset import load_toolset
from tests.support.rounds import Workers

DIRECT, RUN, AUTO = RoutingMode.DIRECT, RoutingMode.ORCHESTRATION, RoutingMode.AUTO


@pytest.mark.parametrize(
    ("mode", "kind", "has_functions", "answer"),
    [
        (None, "model", False, DIRECT),
        (DIRECT, "model", False, DIRECT),
        (RUN, "model", False, RUN),
        (RUN, "model", True, RUN),
        (AUTO, "model", False, AUTO),
        (AUTO, "model", True, DIRECT),
        (None, "plan", False, RUN),
        (AUTO, "plan", False, RUN),
        (RUN, "agent", False, RUN),
        (AUTO, "profile", True, RUN),
    ],
)
def test_routing_decision(mode: RoutingMode | None, kind: Kind, has_functions: bool, answer: RoutingMode) -> None:
    assert decided(mode, Target(kind, "x"), Conversation("Go."), has_functions=has_functions) is answer


@pytest.mark.parametrize("mode", [None, DIRECT, RUN, AUTO])
def test_answers_go_to_their_run_and_other_results_to_the_model(mode: RoutingMode | None) -> None:
    said = Conversation("", answers=[GivenAnswer("call_1", "run-1", "yes")])
    assert decided(mode, Target("model", "small"), said, has_functions=True) is RUN
    if mode is not RUN:
        said = Conversation("", other_tools=True)
        assert decided(mode, Target("model", "small"), said, has_functions=False) is DIRECT


@pytest.mark.parametrize(
    ("mode", "kind", "said"),
    [
        (DIRECT, "plan", Conversation("Go.")),
        (RUN, "model", Conversation("", other_tools=True)),
        (None, "plan", Conversation("", other_tools=True)),
        (AUTO, "profile", Conversation("", other_tools=True)),
        (None, "model", Conversation("", answers=[GivenAnswer("call_1", "run-1", "yes")], other_tools=True)),
    ],
)
def test_contradicting_mode_is_refused(mode: RoutingMode | None, kind: Kind, said: Conversation) -> None:
    with pytest.raises(ApiError) as refused:
        decided(mode, Target(kind, "x"), said, has_functions=False)
    assert refused.value.status == 400


def _desk(folder: Path, own: ToolRegistry | None = None) -> Desk:
    settings = Settings(state_dir=folder)
    toolset = load_toolset(settings)
    toolset = toolset if own is None else replace(toolset, own=own)
    return cast("Desk", SimpleNamespace(settings=settings, toolset=toolset, templates={}))


async def test_rounds_are_a_model_only_where_there_are_workers(tmp_path: Path) -> None:
    none, some = _desk(tmp_path), _desk(tmp_path, Workers().registry())
    assert (profiles_of(none), profiles_of(some)) == (["plan", "intents"], ["plan", "intents", "rounds"])
    with pytest.raises(ApiError, match="rounds requires worker tools in --tools") as refused:
        await retrieve_model("profile/rounds", none)
    assert (refused.value.status, refused.value.code) == (404, "model_not_found")
    assert target_of(some, "profile/rounds") == Target("profile", "rounds")
    assert json.loads(bytes((await retrieve_model("profile/rounds", some)).body))["id"] == "profile/rounds"


def test_name_that_is_near_is_told_as_it_is_to_be_sent(tmp_path: Path) -> None:
    for model, near in (
        ("profile/plans", "did you mean 'profile/plan'"),
        ("profile/zzzzzzzz", "available are plan, intents"),
    ):
        with pytest.raises(ApiError, match=near):
            target_of(_desk(tmp_path), model)
