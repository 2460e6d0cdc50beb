"""`new worker`: writes a worker tool and its test, which work as they are. Needs no server."""

import builtins
import importlib.util
import keyword
import sys
from pathlib import Path
from string import Template

from dagwright.core.plugins import installed_plugins
from dagwright.interfaces.cli.exits import CommandRefused, ExitCode
from dagwright.interfaces.cli.output import Output
from dagwright.planning.plan_and_execute.goals import OWN_IDS
from dagwright.planning.rounds.rounds import is_own
from dagwright.settings import load_settings
from dagwright.tools import load_tools
from dagwright.toolset.toolset import load_toolset

_MOST_CHARACTERS = 70
_COMMAND = "python -m pytest -p no:asyncio test_{}.py"
"""The plugin would warn of a setting that an empty folder does not have, and these tests do without it."""

_OF_TEMPLATES = frozenset({"Any", "WorkerResult", "PreconditionMissing", "call_worker", "worker_tool", "result"})
"""Names in the files below, beside those of Python and of modules, that a worker may not hide."""
_NOT_FIRST = ("_", "test_")

_WORKER = Template('''"""The worker ${name}: `dagwright ask --profile rounds --tools ${name}.py "…"`."""

from typing import Any

from dagwright.tools import WorkerResult, worker_tool


# Stands for a worker that you have already, such as one that searches: delete it then, and take a slot of that one.
# `support`: what it puts out is for other workers, and not for the answer.
@worker_tool(
    preconditions=["The user gives a text and asks about its words."],
    outputs=["${name}_words"],
    goal_type="support",
)
async def ${name}_source(text: str) -> dict[str, Any] | WorkerResult:
    """Splits a text into its words.

    Args:
        text: the text, as the user gives it
    """
    words = text.split()
    if not words:
        # What it raises is a failure too; this one tells a planner how to go on.
        return WorkerResult(status="failed", error="The text is empty", message="Give the words in 'text'.")
    return {"${name}_words": words}


# `requires`: the slots without which it is not called. They come as parameters; a planner cannot write them out.
@worker_tool(
    preconditions=["has `${name}_words`", "the user wants to know how many there are"],
    requires=["${name}_words"],
    outputs=["${name}_text"],
    goal_type="deliverable",
)
async def ${name}(${name}_words: list[str], longer_than: int = 0) -> dict[str, Any]:
    """Counts words.

    Planners choose a worker by these lines: say what this one does that no other does.

    Args:
        ${name}_words: of ${name}_source
        longer_than: words of so many letters, and of fewer, are not counted
    """
    count = sum(len(word) > longer_than for word in ${name}_words)
    return {"${name}_text": f"There are {count} words."}
''')

_TEST = Template('''"""Tests of the worker ${name}: `${command}`."""

import asyncio

import pytest
from ${name} import ${name}, ${name}_source

from dagwright.tools import WorkerResult
from dagwright.tools.testing import PreconditionMissing, call_worker


def test_${name}_puts_out_its_slot() -> None:
    result = asyncio.run(call_worker(${name}, {"${name}_words": ["three", "small", "words"]}))
    assert result == WorkerResult(1, "success", {"${name}_text": "There are 3 words."})


def test_${name}_is_not_called_without_the_slot_that_it_requires() -> None:
    with pytest.raises(PreconditionMissing, match="it requires '${name}_words'"):
        asyncio.run(call_worker(${name}, {"longer_than": 3}))


def test_${name}_source_says_what_it_lacks() -> None:
    result = asyncio.run(call_worker(${name}_source, {"text": " "}))
    assert (result.status, result.message) == ("failed", "Give the words in 'text'.")
''')


def write_worker(name: str, output: Output) -> int:
    """Writes NAME.py and test_NAME.py into the current folder, both or none.

    Raises:
        CommandRefused: the name cannot be that of a worker, or one of the files is there.
    """
    _check_name(name)
    texts = {Path(f"{name}.py"): _WORKER, Path(f"test_{name}.py"): _TEST}
    if there := [str(path) for path in texts if path.exists()]:
        are, them = ("is", "it") if len(there) == 1 else ("are", "them")
        raise CommandRefused(f"{' and '.join(there)} {are} there already; choose another name, or remove {them}")
    for path, text in texts.items():
        path.write_text(text.substitute(name=name, command=_COMMAND.format(name)), encoding="utf-8")
    if output.is_json:
        output.document({"status": "written", "files": [str(path) for path in texts]})
    else:
        output.say(f"written: {name}.py and test_{name}.py")
        output.say(f"test it: {_COMMAND.format(name)}")
        output.say(f"serve it beside others: --tools {name}.py")
    return ExitCode.COMPLETED


def _check_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii() or len(name) > _MOST_CHARACTERS:
        raise CommandRefused(
            f"{name[:50]!r} is no name of a worker: ASCII letters, digits and _, no digit first, no word of Python"
        )
    if name in sys.stdlib_module_names or (not Path(f"{name}.py").exists() and importlib.util.find_spec(name)):
        raise CommandRefused(f"{name!r} is the name of an installed module, which {name}.py would hide; choose another")
    if name in dir(builtins) or name in _OF_TEMPLATES:
        raise CommandRefused(f"{name!r} is a name that the files use themselves; choose another")
    if name.startswith(_NOT_FIRST) or name == "conftest":
        raise CommandRefused(
            f"{name!r} is no name of a worker: _, test_ and conftest mean something else; choose another"
        )
    if is_own(name) or name in OWN_IDS:
        raise CommandRefused(f"{name!r} is what a run calls a node of its own; choose another")
    others = [(load_toolset(load_settings()).built_in, "a tool that is built in")]
    modules = (module for each in installed_plugins() for module in each.plugin.worker_tools)
    others += [(load_tools([module]), f"a worker of {module}") for module in modules]
    for there, whose in others:
        if same := next((tool.name for tool in there if _folded(tool.name) == _folded(name)), None):
            raise CommandRefused(
                f"{name!r} is the name of {whose}{'' if same == name else f', {same}'}; choose another"
            )


def _folded(name: str) -> str:
    """Returns a name as those are compared that stand beside each other."""
    return name.casefold().replace("-", "_")
