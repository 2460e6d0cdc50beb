"""How Python programs prepare the start of a run: from a plan or from natural language, with options."""

import json
import logging
from contextlib import AsyncExitStack
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dagwright.client.ask_starts import AskStart, prepare_ask
from dagwright.client.client import Client
from dagwright.client.client_tools import ClientTools
from dagwright.client.errors import OptionInvalid
from dagwright.client.options import AskOptions, StartOptions, duration_s, run_options
from dagwright.client.plan_starts import PlanStart, prepare_start, read_plan, read_plan_to_repair
from dagwright.client.services import Services
from dagwright.client.starts import StartedRun
from dagwright.core.errors import PlanInvalid
from dagwright.core.model.policy import Policy
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.prepare_run import prepare_run
from dagwright.interfaces.cli.run_commands import RunArguments
from dagwright.plans.plan import Plan
from dagwright.protocol.fairness import Fairness
from dagwright.server import Server
from dagwright.settings import Settings
from dagwright.tools import tool
from dagwright.toolset.program_tools import read_program_tools
from dagwright.toolset.toolset import Toolset, load_toolset

PLAN_TEXT = "title: Refill\nnodes:\n- {id: lamps, tool: stock, arguments: {item: lamp}}\n"
PLAN = {"title": "Refill", "nodes": [{"id": "lamps", "tool": "stock", "arguments": {"item": "lamp"}}]}


@tool(effects="idempotent")
def stock(item: str) -> int:
    """Count an article."""
    return len(item)


@pytest.fixture(scope="module")
def toolset(tmp_path_factory: pytest.TempPathFactory) -> Toolset:
    return load_toolset(Settings(state_dir=tmp_path_factory.mktemp("state")), program_tools=read_program_tools([stock]))


@pytest.mark.parametrize("plan", [PLAN, PLAN_TEXT, Plan.parse(PLAN)], ids=["object", "text", "Plan"])
def test_forms_of_a_plan_start_the_same_run(plan: Any, toolset: Toolset) -> None:
    start = prepare_start(PlanStart(read_plan(plan)), toolset.declarations())
    assert (start.source, start.title) == ({"plan": PLAN, "dialect": "plan", "context": {}}, None)


def test_file_starts_the_same_run_as_the_command_line(toolset: Toolset, tmp_path: Path) -> None:
    (file := tmp_path / "refill.yaml").write_text(PLAN_TEXT)
    command_start = prepare_run(RunArguments(str(file)), toolset, Output(is_json=True))
    for plan in (file, str(file)):
        start = prepare_start(PlanStart(read_plan(plan)), toolset.declarations())
        expected = (command_start.source, command_start.options, "refill.yaml")
        assert (start.source, start.options, start.title) == expected


def test_fairness_key_and_weight_become_the_fairness_of_the_run(toolset: Toolset, tmp_path: Path) -> None:
    assert run_options({"fairness_key": "nightly", "fairness_weight": 0.5}).fairness == Fairness("nightly", 0.5)
    (file := tmp_path / "refill.yaml").write_text(PLAN_TEXT)
    arguments = RunArguments(str(file), fairness_key="nightly", fairness_weight=0.5)
    assert prepare_run(arguments, toolset, Output(is_json=True)).options.fairness == Fairness("nightly", 0.5)
    with pytest.raises(OptionInvalid, match="fairness: a fairness weight needs a fairness key"):
        run_options({"fairness_weight": 0.5})


def test_plan_text_of_a_model_is_repaired_and_needs_approval(toolset: Toolset) -> None:
    options = StartOptions(repair=True, approve_plan=True, interactive=True)
    draft = read_plan_to_repair(f"Here it is:\n```json\n{json.dumps(PLAN)}\n```")
    start = prepare_start(PlanStart(draft, options=options), toolset.declarations())
    assert (start.options.needs_approval, [node.id for node in start.plan.nodes]) == (True, ["lamps"])
    with pytest.raises(PlanInvalid, match="repairs the text of a plan, not dict"):
        read_plan_to_repair(PLAN)


def test_missing_inputs_are_rejected_or_requested(toolset: Toolset) -> None:
    plan = read_plan({**PLAN, "inputs": {"net": {"type": "number"}}, "output": "{{PLACEHOLDER_net}}"})
    with pytest.raises(PlanInvalid, match="net"):
        prepare_start(PlanStart(plan), toolset.declarations())
    start = prepare_start(PlanStart(plan, options=StartOptions(request_inputs=True)), toolset.declarations())
    assert start.inputs == {}
    with pytest.raises(PlanInvalid, match="no input 'gross'"):
        prepare_start(PlanStart(plan, {"net": 1, "gross": 2}), toolset.declarations())


def test_invalid_plan_is_rejected() -> None:
    with pytest.raises(PlanInvalid, match="a plan is a Plan, an object, a text or a file, not int"):
        read_plan(3)  # type: ignore[arg-type]
    with pytest.raises(PlanInvalid, match=r"there is no file missing\.yaml"):
        read_plan("missing.yaml")


def test_start_options_are_converted_to_run_options(tmp_path: Path) -> None:
    (file := tmp_path / "policy.yaml").write_text("otherwise: ask\n")
    options = StartOptions(deadline=timedelta(hours=2), policy=file, tags={"team": "a"})
    actual = run_options(options)
    assert (actual.deadline_s, actual.policy, actual.tags) == (7200.0, Policy(otherwise="ask"), {"team": "a"})
    budget = {"tokens": 1000, "money": 1.5}
    actual = run_options(StartOptions(compensate=True, interactive=False, budget=budget))
    assert (actual.input_fields.compensate, actual.input_fields.is_interactive) == (True, False)
    assert actual.input_fields.budget == {"tokens": 1000, "money": str(Decimal("1.5")), "on_limit": "finish"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deadline": "soon"}, "deadline: 'soon' is not a duration"),
        ({"deadline": 0}, "deadline must be over 0 s and at most"),
        ({"budget": {"token": 1}}, "budget: unknown limit 'token'"),
        ({"policy": {"otherwise": "perhaps"}}, "policy: "),
        ({"policy": "missing.yaml"}, "policy: there is no file missing.yaml"),
        ({"tags": {"team": 1}}, "tags: .* must be a string"),
    ],
)
def test_invalid_options_are_named(options: StartOptions, message: str) -> None:
    with pytest.raises(OptionInvalid, match=f"^{message}"):
        run_options(options)


@pytest.mark.parametrize(("duration", "seconds"), [("30s", 30.0), (1.5, 1.5), (timedelta(minutes=1), 60.0)])
def test_durations_are_read(duration: Any, seconds: float) -> None:
    assert duration_s("deadline", duration) == seconds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_rounds": 2}, "the profile 'plan' has no option 'max_rounds'"),
        ({"profile": "rounds", "approve_plan": True}, "the profile 'rounds' has no option 'approve_plan'"),
        ({"profile": "intents", "max_replans": 2}, "the profile 'intents' has no option 'max_replans'"),
        ({"model": ""}, "model: "),
    ],
)
def test_options_of_other_profiles_are_rejected(options: AskOptions, message: str, toolset: Toolset) -> None:
    with pytest.raises(OptionInvalid, match=f"^{message}"):
        prepare_ask(AskStart("Refill the lamps", options), toolset)


def test_request_is_planned_with_the_tools_of_the_client(toolset: Toolset) -> None:
    start = prepare_ask(AskStart("Refill the lamps", AskOptions(model="small", plan_only=True)), toolset)
    assert start.tools == toolset.references
    assert start.plan.extender is not None
    assert (start.source["goal"], start.source["config"]) == ("Refill the lamps", {"model": "small"})


@pytest.mark.parametrize(("is_new_server", "warning_count"), [(True, 1), (False, 0)])
async def test_start_on_a_new_server_warns_that_the_run_waits_for_a_worker(
    is_new_server: bool,
    warning_count: int,
    toolset: Toolset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def find_toolset(*_: Any) -> Toolset:
        return toolset

    async def start(_: Any) -> StartedRun:
        return StartedRun("refill-1", "1", is_new=True)

    monkeypatch.setattr(ClientTools, "toolset", find_toolset)
    unused_services: dict[str, Any] = dict.fromkeys(("store", "steering", "sessions"))
    connection: Any = SimpleNamespace(server=Server("here:1", "default", is_new=is_new_server))
    runs: Any = SimpleNamespace(start=start)
    services = Services(settings=Settings(state_dir=tmp_path), connection=connection, runs=runs, **unused_services)
    with caplog.at_level(logging.WARNING, logger="dagwright.client"):
        await Client(services, AsyncExitStack()).ask("Refill the lamps", model="small")
    assert len(caplog.messages) == warning_count
    assert all(message.startswith("the run refill-1 waits for a worker") for message in caplog.messages)
