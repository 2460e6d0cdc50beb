"""`new worker`: create a worker tool and its test, which work without changes. Needs no server."""

import builtins
import importlib.util
import keyword
import sys
from pathlib import Path
from string import Template

from dagwright.core.plugins import installed_plugins
from dagwright.interfaces.cli.exit_codes import CommandRefused, ExitCode
from dagwright.interfaces.cli.output import Output
from dagwright.planning.plan_and_execute.goal_spec import RESERVED_IDS
from dagwright.planning.rounds.rounds_spec import is_reserved
from dagwright.settings import load_settings
from dagwright.tools import load_tools
from dagwright.toolset.toolset import load_toolset

_MAX_CHARACTERS = 70
_COMMAND = "python -m pytest -p no:asyncio test_{}.py"
"""Without the plugin, which would warn about a missing setting in an empty folder."""

_TEMPLATE_NAMES = frozenset({"Any", "WorkerResult", "PreconditionMissing", "call_worker", "worker_tool", "result"})
"""Names in the templates, besides those of Python and of modules, that a worker tool must not hide."""
_EXCLUDED_PREFIXES = ("_", "test_")

_WORKER = Template('''"""The worker tool ${name}: `dagwright ask --profile rounds --tools ${name}.py "…"`."""

from typing import Any

from dagwright.tools import WorkerResult, worker_tool


# An example source, such as a search: delete it if you have one, and use a slot of that one.
# `support`: its output is for other worker tools, not for the answer.
@worker_tool(
    preconditions=["The user gives a text and asks about its words."],
    outputs=["${name}_words"],
    goal_type="support",
)
async def ${name}_source(text: str) -> dict[str, Any] | WorkerResult:
    """Split a text into its words.

    Args:
        text: the text, as the user gives it
    """
    words = text.split()
    if not words:
        # Exceptions are failures too; this result also has a hint for the planner.
        return WorkerResult(status="failed", error="The text is empty", message="Give the words in 'text'.")
    return {"${name}_words": words}


# `requires`: slots that must be filled before the call. They are passed as parameters; a planner cannot set them.
@worker_tool(
    preconditions=["has `${name}_words`", "the user wants to know how many there are"],
    requires=["${name}_words"],
    outputs=["${name}_text"],
    goal_type="deliverable",
)
async def ${name}(${name}_words: list[str], longer_than: int = 0) -> dict[str, Any]:
    """Count words.

    Planners choose a worker tool by this text: state how it differs from the others.

    Args:
        ${name}_words: of ${name}_source
        longer_than: count only words with more letters than this
    """
    count = sum(len(word) > longer_than for word in ${name}_words)
    return {"${name}_text": f"There are {count} words."}
''')

_TEST = Template('''"""Tests of the worker tool ${name}: `${command}`."""

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
    """Write NAME.py and test_NAME.py to the current folder, both or none.

    Raises:
        CommandRefused: the name is invalid, or one of the files exists.
    """
    _check_name(name)
    texts = {Path(f"{name}.py"): _WORKER, Path(f"test_{name}.py"): _TEST}
    if existing := [str(path) for path in texts if path.exists()]:
        exist, them = ("exists", "it") if len(existing) == 1 else ("exist", "them")
        raise CommandRefused(f"{' and '.join(existing)} already {exist}; choose another name, or remove {them}")
    for path, text in texts.items():
        path.write_text(text.substitute(name=name, command=_COMMAND.format(name)), encoding="utf-8")
    if output.is_json:
        output.document({"status": "written", "files": [str(path) for path in texts]})
    else:
        output.print(f"written: {name}.py and test_{name}.py")
        output.print(f"test it: {_COMMAND.format(name)}")
        output.print(f"serve it with other tools: --tools {name}.py")
    return ExitCode.COMPLETED


def _check_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii() or len(name) > _MAX_CHARACTERS:
        raise CommandRefused(
            f"invalid name {name[:50]!r} of a worker tool: use ASCII letters, digits and _, no keyword"
        )
    if name in sys.stdlib_module_names or (not Path(f"{name}.py").exists() and importlib.util.find_spec(name)):
        raise CommandRefused(f"{name!r} is the name of an installed module, which {name}.py would hide; choose another")
    if name in dir(builtins) or name in _TEMPLATE_NAMES:
        raise CommandRefused(f"{name!r} is used in the created files; choose another")
    if name.startswith(_EXCLUDED_PREFIXES) or name == "conftest":
        raise CommandRefused(
            f"invalid name {name!r} of a worker tool: _, test_ and conftest have other meanings; choose another"
        )
    if is_reserved(name) or name in RESERVED_IDS:
        raise CommandRefused(f"{name!r} is the ID of a node that runs use; choose another")
    others = [(load_toolset(load_settings()).built_in, "a built-in tool")]
    modules = (module for plugin in installed_plugins() for module in plugin.plugin.worker_tools)
    others += [(load_tools([module]), f"a worker tool of {module}") for module in modules]
    for tools, owner in others:
        if same := next((tool.name for tool in tools if _folded(tool.name) == _folded(name)), None):
            raise CommandRefused(
                f"{name!r} is the name of {owner}{'' if same == name else f', {same}'}; choose another"
            )


def _folded(name: str) -> str:
    """Return a name in the form in which names are compared."""
    return name.casefold().replace("-", "_")
