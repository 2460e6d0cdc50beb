"""API facts of docs/guides/python-methods.md: each command has a Python form, and each error can be imported."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dagwright
from dagwright import Client, DagwrightError, Plan, Run, Session, SyncClient, errors
from dagwright.client.options import AskOptions, StartOptions
from dagwright.client.sync_client import SyncRun, SyncSession
from dagwright.interfaces.cli import app

PAGE = (Path(__file__).parents[3] / "docs" / "guides" / "python-methods.md").read_text(encoding="utf-8")
OWNERS: dict[str, Any] = {"client": Client, "run": Run, "plan": Plan, "session": Session}
OTHER_NAMES = {"id": "run_id", "input": "inputs", "tag": "tags", "non-interactive": "interactive"}
"""Options of the command line whose Python form has another name."""
PARAMETERS = {"inputs", "run_id", "tools", "agents"}
"""Options that are parameters of `Client.start`, `Client.ask` or `Worker`."""
OF_COMMANDS = {"input-file", "detach", "keep-server", "tools-queue", "json", "no-color"}
"""Options that only a command or the connection has."""


def rows(heading: str) -> Iterator[list[str]]:
    """Yield the cells of the table after a text."""
    text = PAGE[PAGE.index(heading) :]
    for line in text[text.index("\n|") + 1 :].split("\n\n")[0].splitlines()[2:]:
        yield [cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def commands() -> set[str]:
    return {*app.click_command().commands}


def test_each_command_has_a_python_form_or_is_named_as_a_command_only() -> None:
    described = {
        command.split()[0] for cells in rows("## Commands and methods") for command in re.findall(r"`(.*?)`", cells[0])
    }
    (sentence,) = re.findall(r"^(`up`.*) are commands only\.$", PAGE, re.MULTILINE)
    assert described | {*re.findall(r"`(\w+)`", sentence)} == commands()


def test_each_python_form_of_a_command_exists() -> None:
    forms = [cells[1] for cells in rows("## Commands and methods")]
    named = [match for form in forms for match in re.findall(r"\b(client|run|plan)\.(\w+)", form)]
    assert len(named) > 25
    assert [f"{owner}.{name}" for owner, name in named if not hasattr(OWNERS[owner], name)] == []


@pytest.mark.parametrize(("command", "options"), [("run", StartOptions), ("ask", AskOptions)])
def test_options_have_the_names_of_the_command_line(command: str, options: type) -> None:
    opts = [each for parameter in app.click_command().commands[command].params for each in parameter.opts]
    flags = {each.removeprefix("--") for each in opts if each.startswith("--")} - OF_COMMANDS
    named = {OTHER_NAMES.get(flag, flag).replace("-", "_") for flag in flags}
    assert named - PARAMETERS - {*options.__annotations__} == set()


@pytest.mark.parametrize(
    ("asynchronous", "synchronous"), [(Client, SyncClient), (Run, SyncRun), (Session, SyncSession)]
)
def test_synchronous_classes_have_every_method(asynchronous: type, synchronous: type) -> None:
    def names(owner: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(owner) if not name.startswith("_")}

    assert names(asynchronous) - names(synchronous) <= {"from_temporal", "settings", "temporal"}


def test_each_error_of_the_page_is_in_the_module_of_errors() -> None:
    described = [name for cells in rows("## Errors\n") for name in re.findall(r"`([A-Z]\w+)`", cells[0])]
    assert len(described) > 12
    assert [name for name in described if name not in errors.__all__] == []
    classes = [getattr(errors, name) for name in errors.__all__ if name != "Problem"]
    assert [each for each in classes if not issubclass(each, DagwrightError | errors.ChildRunFailed)] == []


def test_public_errors_are_in_the_module_of_errors() -> None:
    exceptions = [
        name
        for name in dagwright.__all__
        if isinstance(found := getattr(dagwright, name), type) and issubclass(found, Exception)
    ]
    assert len(exceptions) > 5
    assert [name for name in exceptions if name not in errors.__all__] == []
