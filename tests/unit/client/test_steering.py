"""Messages to a run whose signal limit is reached, and checks outside of the event loop."""

from pathlib import Path
from threading import get_ident, main_thread
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.service import RPCError, RPCStatusCode

from dagwright.client import fork_runs, forks, steering
from dagwright.client.errors import CommandRejected, OptionInvalid, ServerRejected
from dagwright.client.feedback.open_requests import RequestRef
from dagwright.client.fork_runs import ForkChanges, draft_fork
from dagwright.client.forks import Forks
from dagwright.client.steering import PAUSE, Command, CommandAuthor, Steering
from dagwright.features.run_scheduler import create_scheduler
from dagwright.plans.preparation import check_plan, prepare_plan
from dagwright.server import Connection, Server
from dagwright.settings import Settings
from dagwright.toolset.toolset import load_toolset


class _FullRun:
    """Fake client and handle of a run that has reached the signal limit of the server."""

    id = "run"

    def __init__(self, status: RPCStatusCode) -> None:
        self._status = status
        self.was_cancelled = False

    def get_workflow_handle(self, workflow_id: str) -> "_FullRun":
        assert workflow_id == self.id
        return self

    async def describe(self) -> None:
        """Return without an error: the run exists."""

    async def execute_update(self, name: str, message: Any) -> None:
        raise RPCError(f"{name} {message}: too many", self._status, b"")

    async def cancel(self) -> None:
        self.was_cancelled = True


def _steering_of(run: Any) -> Steering:
    return Steering(Connection(run, Server("here", "default"), frozenset()))


@pytest.mark.parametrize("status", [RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.FAILED_PRECONDITION])
async def test_run_that_accepts_no_more_messages_is_cancelled_through_temporal(status: RPCStatusCode) -> None:
    run = _FullRun(status)
    result = await _steering_of(run).cancel("run", CommandAuthor("ann"))
    assert (result, run.was_cancelled) == ("the run accepts no more messages; it was cancelled through Temporal", True)
    with pytest.raises((RPCError, ServerRejected)):
        await _steering_of(run).send("run", PAUSE)


@pytest.mark.parametrize(
    ("command", "author", "message"),
    [
        (
            Command.set_result("sum", result="x" * 300_000),
            CommandAuthor(),
            "message has 300,0.* bytes as JSON; at most 262,144",
        ),
        (Command.set_policy({"x": "y" * 7_000_000}), CommandAuthor(), "at most 262,144 are allowed"),
        (PAUSE, CommandAuthor(reason="x" * 4_001), "'reason' must be a string of at most 4,000 characters"),
        (None, CommandAuthor("x" * 201), "'by' must be a string of at most 200 characters"),
    ],
)
async def test_message_that_every_run_would_reject_is_not_sent(
    command: Command | None, author: CommandAuthor, message: str
) -> None:
    run = _FullRun(RPCStatusCode.INVALID_ARGUMENT)
    steering_client = _steering_of(run)
    with pytest.raises(CommandRejected, match=message) as error:
        await (
            steering_client.cancel("run", author) if command is None else steering_client.send("run", command, author)
        )
    assert (type(error.value), run.was_cancelled) == (CommandRejected, False)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (Command.set_limits({"max_parallel": 0}), "'max_parallel' "),
        (Command.set_limits({"budget": {"token": 1}}), "'budget' is invalid: "),
        (Command.set_policy({"rules": 1}), "rules"),
    ],
)
async def test_invalid_limits_and_policies_are_not_sent(command: Command, message: str) -> None:
    with pytest.raises(OptionInvalid, match=message):
        await _steering_of(_FullRun(RPCStatusCode.INVALID_ARGUMENT)).send("run", command)


PLAN: dict[str, Any] = {"plan": 1, "nodes": [{"id": "sum", "tool": "calculator", "arguments": {"expression": "1 + 2"}}]}


def _watch_functions(monkeypatch: pytest.MonkeyPatch, *functions: tuple[Any, str]) -> dict[str, bool]:
    """Record whether functions of modules are called outside of the event loop."""
    is_outside_by_name: dict[str, bool] = {}

    def watch_function(module: Any, name: str) -> None:
        original_function = getattr(module, name)

        def record_thread(*args: Any, **kwargs: Any) -> Any:
            is_outside_by_name[name] = get_ident() != main_thread().ident
            return original_function(*args, **kwargs)

        monkeypatch.setattr(module, name, record_thread)

    for module, name in functions:
        watch_function(module, name)
    return is_outside_by_name


async def test_nodes_are_checked_outside_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def view(*_: Any) -> Any:
        return SimpleNamespace(scheduler=None)

    async def accept_command(*_: Any, **__: Any) -> str:
        return "added"

    monkeypatch.setattr(Steering, "_open_view", view)
    monkeypatch.setattr(Steering, "_send", accept_command)
    actual = _watch_functions(monkeypatch, (steering, "_nodes_message"))
    assert await _steering_of(None).add_nodes("run-1", PLAN["nodes"], tools={}, by=None) == "added"
    assert actual == {"_nodes_message": True}
    actual.clear()
    await _steering_of(None).nodes_of_answer(RequestRef("run-1", "check"), PLAN["nodes"], tools={})
    assert actual == {"_nodes_message": True}


async def test_fork_is_checked_outside_the_event_loop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    toolset = load_toolset(Settings(state_dir=tmp_path), ())
    scheduler = create_scheduler(prepare_plan(check_plan(PLAN, toolset.declarations()), {}), {})
    run_input = SimpleNamespace(parent=None, scope="", context={})
    ids = {"run_id": "run-1", "first_execution_id": "first"}
    view = SimpleNamespace(**ids, scheduler=scheduler, run_input=run_input, is_closed=True)

    async def read() -> Any:
        return view

    def reader(_: str) -> Any:
        return SimpleNamespace(read=read)

    monkeypatch.setattr(forks, "_inherited_input", lambda *_, **__: None)
    functions = ((fork_runs, "check_plan"), (forks, "_reuse_and_prediction"), (forks, "plan_to_json"))
    actual = _watch_functions(monkeypatch, *functions)
    runs = cast("Any", SimpleNamespace(reader=reader))
    forks_client, tools = Forks(reader, cast("Any", None)), toolset.declarations()
    draft = await draft_fork("run-1", ForkChanges((PLAN,)), runs=runs, forks=forks_client, tools=tools)
    assert draft.origin == "run-1"
    assert actual == {"check_plan": True, "_reuse_and_prediction": True, "plan_to_json": True}
