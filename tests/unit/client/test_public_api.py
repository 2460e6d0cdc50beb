"""The names of `dagwright`: complete, documented, and imported only when they are used."""

import inspect
import json
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dagwright
from dagwright import Client, DagwrightError, Plan, Run, Session, SyncClient, errors, events, settings, tools, types
from dagwright.client.options import AskOptions, StartOptions
from dagwright.client.sync_client import SyncRun, SyncSession
from dagwright.interfaces.cli import app

NAMES = [name for name in dagwright.__all__ if name != "__version__"]


def test_dunder_all_lists_the_lazy_names_in_order() -> None:
    assert dagwright.__all__ == [*sorted([*NAMES, "__version__"])]
    assert sorted(dagwright._MODULES) == sorted(NAMES)
    assert set(dagwright.__all__) <= set(dir(dagwright))
    assert len(NAMES) < 28, "errors, events and types of results belong to dagwright.errors, .events and .types"


def _returned_types(owner: Any) -> Iterator[type]:
    """Yield the classes in the return annotation of a function, or of each public method of a class."""
    if inspect.isclass(owner):
        for name, member in inspect.getmembers(owner):
            if not name.startswith("_"):
                yield from _returned_types(member.fget if isinstance(member, property) else member)
    elif callable(owner):
        # Synchronous methods keep the annotations of the methods that they wrap.
        yield from _classes_in(typing.get_type_hints(inspect.unwrap(owner)).get("return"))


def _classes_in(annotation: Any) -> Iterator[type]:
    if inspect.isclass(origin := typing.get_origin(annotation) or annotation):
        yield origin
    for argument in typing.get_args(annotation):
        yield from _classes_in(argument)


@pytest.mark.parametrize("name", [*NAMES, *types.__all__])
def test_each_type_that_a_method_returns_can_be_imported(name: str) -> None:
    modules = (dagwright, errors, events, settings, tools, types)
    public_types = {getattr(module, each) for module in modules for each in getattr(module, "__all__", ["Settings"])}
    owner = getattr(dagwright, name, None) or getattr(types, name)
    returned_types = {each for each in _returned_types(owner) if each.__module__.startswith("dagwright.")}
    assert returned_types <= public_types


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_documented(name: str) -> None:
    function_or_class = getattr(dagwright, name)
    assert function_or_class.__doc__
    assert function_or_class.__module__.startswith("dagwright.")


def test_unknown_name_is_rejected() -> None:
    with pytest.raises(AttributeError, match=r"^module 'dagwright' has no attribute 'Klient'$"):
        dagwright.Klient  # type: ignore[attr-defined]  # noqa: B018


def test_importing_dagwright_loads_nothing_else() -> None:
    """Neither a third-party package nor another module of Dagwright is loaded."""
    code = "import sys; before = {*sys.modules}; import dagwright, json; print(json.dumps([*{*sys.modules} - before]))"
    loaded_modules = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)
    modules_outside_stdlib = {name for name in loaded_modules if name.partition(".")[0] not in sys.stdlib_module_names}
    assert modules_outside_stdlib == {"dagwright"}


def test_importing_the_client_loads_no_optional_library() -> None:
    """Workers, HTTP tools, queries and models are imported when a program uses them."""
    libraries = ["temporalio.worker", "temporalio.testing", "jsonpath", "httpx", "openai", "mcp", "fastapi", "cel"]
    code = f"import sys; from dagwright import Client; print([each for each in {libraries} if each in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output == "[]\n"


PAGE = (Path(__file__).parents[3] / "docs" / "guides" / "python-methods.md").read_text(encoding="utf-8")
CLASSES_BY_NAME: dict[str, Any] = {"client": Client, "run": Run, "plan": Plan, "session": Session}
PYTHON_NAMES = {
    "id": "run_id",
    "input": "inputs",
    "tag": "tags",
    "session": "session_id",
    "non-interactive": "interactive",
}
"""Option of the command line -> Python option, if the names differ."""
PARAMETER_OPTIONS = {"inputs", "run_id", "tools", "agents"}
"""Options that are parameters of `Client.start`, `Client.ask` or `Worker`."""
COMMAND_ONLY_OPTIONS = {"input-file", "detach", "keep-server", "tools-queue", "json", "no-color"}
"""Options that are not for a run, but for the command or the connection."""


def rows(heading: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the first table after a heading."""
    text = PAGE[PAGE.index(heading) :]
    for line in text[text.index("\n|") + 1 :].split("\n\n")[0].splitlines()[2:]:
        yield [cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_each_command_has_a_python_form_or_is_listed_as_command_only() -> None:
    described_names = {
        command.split()[0] for cells in rows("## Commands and methods") for command in re.findall(r"`(.*?)`", cells[0])
    }
    (sentence,) = re.findall(r"^(`up`.*) manage processes.*they have no Python form\.$", PAGE, re.MULTILINE)
    assert described_names | {*re.findall(r"`(\w+)`", sentence)} == {*app.click_command().commands}


def test_each_python_form_of_a_command_exists() -> None:
    forms = [cells[1] for cells in rows("## Commands and methods")]
    named_methods = [match for form in forms for match in re.findall(r"\b(client|run|plan)\.(\w+)", form)]
    assert len(named_methods) > 25
    assert [f"{owner}.{name}" for owner, name in named_methods if not hasattr(CLASSES_BY_NAME[owner], name)] == []


@pytest.mark.parametrize(("command", "options"), [("run", StartOptions), ("ask", AskOptions)])
def test_options_have_the_names_of_the_command_line(command: str, options: type) -> None:
    opts = [each for parameter in app.click_command().commands[command].params for each in parameter.opts]
    flags = {each.removeprefix("--") for each in opts if each.startswith("--")} - COMMAND_ONLY_OPTIONS
    option_names = {PYTHON_NAMES.get(flag, flag).replace("-", "_") for flag in flags}
    assert option_names - PARAMETER_OPTIONS - {*options.__annotations__} == set()


@pytest.mark.parametrize(("async_class", "sync_class"), [(Client, SyncClient), (Run, SyncRun), (Session, SyncSession)])
def test_synchronous_classes_have_every_method_of_the_asynchronous_classes(async_class: type, sync_class: type) -> None:
    def names(owner: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(owner) if not name.startswith("_")}

    assert names(async_class) - names(sync_class) <= {"from_temporal", "settings", "temporal"}


def test_each_error_of_the_page_is_in_the_module_of_errors() -> None:
    described_names = [name for cells in rows("## Errors\n") for name in re.findall(r"`([A-Z]\w+)`", cells[0])]
    assert len(described_names) > 12
    assert [name for name in described_names if name not in errors.__all__] == []
    classes = [getattr(errors, name) for name in errors.__all__ if name != "Problem"]
    assert [each for each in classes if not issubclass(each, DagwrightError | errors.ChildRunFailed)] == []


def test_public_errors_are_in_the_module_of_errors() -> None:
    values = {name: getattr(dagwright, name) for name in NAMES}
    exceptions = [name for name, value in values.items() if inspect.isclass(value) and issubclass(value, Exception)]
    assert len(exceptions) > 5
    assert [name for name in exceptions if name not in errors.__all__] == []
