"""The runs that requests of the gateway stand for."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from dagwright.contracts.model_calls import ModelConfig
from dagwright.contracts.rounds import QUESTION_TIMEOUT_S
from dagwright.gateway import Desk
from dagwright.gateway.bodies import Wishes
from dagwright.gateway.callers import Caller
from dagwright.gateway.conversation import Conversation
from dagwright.gateway.errors import ApiError
from dagwright.gateway.jobs import job_of
from dagwright.gateway.targets import Target
from dagwright.settings import Settings
from dagwright.toolset import load_toolset
from dagwright.turns import PreparedRun
from tests.support.rounds import Workers


def _prepared(folder: Path, target: Target, wishes: Wishes) -> PreparedRun:
    toolset = replace(load_toolset(Settings(state_dir=folder)), own=Workers().registry())
    desk = cast("Desk", SimpleNamespace(toolset=toolset, templates={}, caller=Caller("me")))
    return job_of(desk, target, Conversation("Compare."), wishes=wishes, config=ModelConfig()).prepare(None)


def test_question_has_the_rounds_and_the_times_that_its_request_says(tmp_path: Path) -> None:
    run = _prepared(tmp_path, Target("profile", "rounds"), Wishes(max_rounds=4, worker_timeout_s=120, deadline_s=900))
    assert run.plan.pursuit is not None
    assert (run.plan.pursuit["max_rounds"], run.plan.pursuit["worker_timeout_s"]) == (4, 120)
    assert (run.plan.deadline_s, run.terms.deadline_s, run.terms.owner) == (900, 900, "me")
    # With the key of another number of rounds it is another request.
    assert (run.source["max_rounds"], run.source["worker_timeout_s"]) == (4, 120)
    usual = _prepared(tmp_path, Target("profile", "rounds"), Wishes())
    assert (usual.plan.deadline_s, usual.terms.deadline_s) == (QUESTION_TIMEOUT_S, None)


def test_any_run_has_a_deadline_and_only_questions_in_rounds_have_rounds(tmp_path: Path) -> None:
    plan = Target("profile", "plan")
    assert _prepared(tmp_path, plan, Wishes(deadline_s=900)).terms.deadline_s == 900
    for wishes, name in ((Wishes(max_rounds=4), "max_rounds"), (Wishes(worker_timeout_s=9.0), "worker_timeout")):
        with pytest.raises(ApiError, match="profile/plan has no rounds of workers") as refused:
            _prepared(tmp_path, plan, wishes)
        assert (refused.value.status, refused.value.param) == (400, name)
