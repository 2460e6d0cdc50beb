"""What model ids of the gateway stand for."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from dagwright.interfaces.http import Desk
from dagwright.interfaces.http.errors import ApiError
from dagwright.interfaces.http.model_list import retrieve_model
from dagwright.interfaces.http.targets import Target, profiles_of, target_of
from dagwright.settings import Settings
from dagwright.tools import ToolRegistry
from dagwright.toolset.toolset import load_toolset
from tests.support.rounds import Workers


def _desk(folder: Path, own: ToolRegistry | None = None) -> Desk:
    settings = Settings(state_dir=folder)
    toolset = load_toolset(settings)
    toolset = toolset if own is None else replace(toolset, own=own)
    return cast("Desk", SimpleNamespace(settings=settings, toolset=toolset, templates={}))


async def test_rounds_are_a_model_only_where_there_are_workers(tmp_path: Path) -> None:
    none, some = _desk(tmp_path), _desk(tmp_path, Workers().registry())
    assert (profiles_of(none), profiles_of(some)) == (["plan", "intents"], ["plan", "intents", "rounds"])
    with pytest.raises(ApiError, match="rounds too where --tools names workers") as refused:
        await retrieve_model("profile/rounds", none)
    assert (refused.value.status, refused.value.code) == (404, "model_not_found")
    assert target_of(some, "profile/rounds") == Target("profile", "rounds")
    assert json.loads(bytes((await retrieve_model("profile/rounds", some)).body))["id"] == "profile/rounds"


def test_name_that_is_near_is_told_as_it_is_to_be_sent(tmp_path: Path) -> None:
    for model, near in (
        ("profile/plans", "did you mean 'profile/plan'"),
        ("profile/zzzzzzzz", "there are plan, intents"),
    ):
        with pytest.raises(ApiError, match=near):
            target_of(_desk(tmp_path), model)
