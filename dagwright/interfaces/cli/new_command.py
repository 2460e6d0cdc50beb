"""`new worker`: create a worker tool and its test. The test passes without changes. The command needs no server."""

import builtins
import importlib.util
import keyword
import sys
from pathlib import Path
from string import Template

from dagwright.core.plugins import installed_plugins
from dagwright.interfaces.cli.exit_codes import CommandError, ExitCode
from dagwright.interfaces.cli.output import Output
from dagwright.planning.plan_and_execute.goal_spec import RESERVED_IDS
from dagwright.planning.rounds.rounds_spec import is_reserved
from dagwright.settings import load_settings
from dagwright.tools import load_tools
from dagwright.toolset.toolset import load_toolset

_MAX_NAME_CHARACTERS = 70
_TEST_COMMAND = "python -m pytest -p no:asyncio test_{}.py"
"""`pytest-asyncio` is disabled, because it would warn about a missing setting in an empty folder."""

_TEMPLATE_NAMES = frozenset({"Any", "WorkerResult", "PreconditionMissing", "call_worker", "worker_tool", "result"})
"""Names in the templates that a worker tool must not hide, in addition to builtins and module names."""
_EXCLUDED_PREFIXES = ("_", "test_")

_WORKER = Template('''"""The worker tool ${name}: `dagwright ask --profile rounds --tools ${name}.py "…"`."""

from typing import Any

from dagwright.tools import WorkerResult, worker_tool


# Example of a tool that supplies the values for the worker tool below, as a search would.
# If one of your tools already fills a slot with such values, delete this tool, and name that slot in `requires` below.
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
        # An exception is a failure too, but this result also has a hint for the planner.
        return WorkerResult(status="failed", error="The text is empty", message="Give the words in 'text'.")
    return {"${name}_words": words}


# `requires`: slots that must be filled before the call. The values are passed as parameters; planners cannot set them.
@worker_tool(
    preconditions=["has `${name}_words`", "the user wants to know the number of words"],
    requires=["${name}_words"],
    outputs=["${name}_text"],
    goal_type="deliverable",
)
async def ${name}(${name}_words: list[str], longer_than: int = 0) -> dict[str, Any]:
    """Count words.

    Planners choose a worker tool by this text: state how the tool differs from the other tools.

    Args:
        ${name}_words: words from ${name}_source
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


def test_${name}_fills_its_slot() -> None:
    result = asyncio.run(call_worker(${name}, {"${name}_words": ["three", "small", "words"]}))
    assert result == WorkerResult(1, "success", {"${name}_text": "There are 3 words."})


def test_${name}_needs_its_required_slot() -> None:
    with pytest.raises(PreconditionMissing, match="it requires '${name}_words'"):
        asyncio.run(call_worker(${name}, {"longer_than": 3}))


def test_${name}_source_rejects_an_empty_text() -> None:
    result = asyncio.run(call_worker(${name}_source, {"text": " "}))
    assert (result.status, result.message) == ("failed", "Give the words in 'text'.")
''')


def write_worker(name: str, output: Output) -> int:
    """Write NAME.py and test_NAME.py to the current folder; if one of the files exists, write nothing.

    Raises:
        CommandError: the name is invalid, or one of the files exists.
    """
    _check_name(name)
    template_of_path = {Path(f"{name}.py"): _WORKER, Path(f"test_{name}.py"): _TEST}
    if existing_files := [str(path) for path in template_of_path if path.exists()]:
        verb, pronoun = ("exists", "it") if len(existing_files) == 1 else ("exist", "them")
        raise CommandError(f"{' and '.join(existing_files)} already {verb}; choose another name, or remove {pronoun}")
    for path, template in template_of_path.items():
        path.write_text(template.substitute(name=name, command=_TEST_COMMAND.format(name)), encoding="utf-8")
    if output.is_json:
        output.document({"status": "written", "files": [str(path) for path in template_of_path]})
    else:
        output.print(f"written: {name}.py and test_{name}.py")
        output.print(f"test it: {_TEST_COMMAND.format(name)}")
        output.print(f"serve it with other tools: --tools {name}.py")
    return ExitCode.COMPLETED


def _check_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii() or len(name) > _MAX_NAME_CHARACTERS:
        raise CommandError(
            f"invalid name {name[:50]!r} of a worker tool: use ASCII letters, digits and _, but no keyword"
        )
    if name in sys.stdlib_module_names or (not Path(f"{name}.py").exists() and importlib.util.find_spec(name)):
        raise CommandError(f"{name!r} is the name of an installed module, which {name}.py would hide; choose another")
    if name in dir(builtins) or name in _TEMPLATE_NAMES:
        raise CommandError(f"{name!r} is used in the created files; choose another")
    if name.startswith(_EXCLUDED_PREFIXES) or name == "conftest":
        raise CommandError(
            f"invalid name {name!r} of a worker tool: conftest and names that start with _ or test_ have other "
            "meanings; choose another"
        )
    if is_reserved(name) or name in RESERVED_IDS:
        raise CommandError(f"{name!r} is a reserved node ID; choose another")
    tools_and_owners = [(load_toolset(load_settings()).built_in, "a built-in tool")]
    modules = (module for installed in installed_plugins() for module in installed.plugin.worker_tools)
    tools_and_owners += [(load_tools([module]), f"a worker tool of {module}") for module in modules]
    for tools, owner in tools_and_owners:
        if taken_name := next((tool.name for tool in tools if _normalize(tool.name) == _normalize(name)), None):
            # The existing tool may have another spelling of the name.
            spelling_suffix = "" if taken_name == name else f", {taken_name}"
            raise CommandError(f"{name!r} is the name of {owner}{spelling_suffix}; choose another")


def _normalize(name: str) -> str:
    """Return a name without the differences that a comparison of names ignores: case, and `-` instead of `_`."""
    return name.casefold().replace("-", "_")
