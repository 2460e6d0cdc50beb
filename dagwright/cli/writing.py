"""`new worker`: writes a worker tool and its test, which work as they are. Needs no server."""

import importlib.util
import keyword
import sys
from pathlib import Path
from string import Template

from dagwright.cli.exits import CommandRefused, ExitCode
from dagwright.cli.output import Output
from dagwright.settings import load_settings
from dagwright.toolset import load_toolset

_MOST_CHARACTERS = 80

_WORKER = Template('''"""The worker ${name}: `dagwright ask --profile rounds --tools ${name}.py "…"`."""

from typing import Any

from dagwright.tools import WorkerResult, worker_tool


# Slots of other workers come as parameters; `requires=["es_results"]` names those without which it is not called.
# `support` instead of `deliverable`: what it puts out is for other workers, and not for the answer.
@worker_tool(
    preconditions=["The user wants to know how many words a text has."],
    outputs=["${name}_text"],
    goal_type="deliverable",
)
async def ${name}(text: str) -> dict[str, Any] | WorkerResult:
    """Counts the words of a text.

    Planners choose a worker by these lines: say what this one does that no other does.

    Args:
        text: the text whose words are counted
    """
    words = text.split()
    if not words:
        # What it raises is a failure too; this one tells a planner how to go on.
        return WorkerResult(status="failed", error="The text is empty", message="Give the words in 'text'.")
    return {"${name}_text": f"The text has {len(words)} words."}
''')

_TEST = Template('''"""Tests of the worker ${name}: `python -m pytest test_${name}.py`."""

import asyncio

from ${name} import ${name}

from dagwright.tools import WorkerResult
from dagwright.tools.testing import call_worker


def test_${name}_puts_out_its_slot() -> None:
    result = asyncio.run(call_worker(${name}, {"text": "three small words"}))
    assert result == WorkerResult(1, "success", {"${name}_text": "The text has 3 words."})


def test_${name}_says_what_it_lacks() -> None:
    result = asyncio.run(call_worker(${name}, {"text": " "}))
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
        path.write_text(text.substitute(name=name), encoding="utf-8")
    if output.is_json:
        output.document({"status": "written", "files": [str(path) for path in texts]})
    else:
        output.say(f"written: {name}.py and test_{name}.py")
        output.say(f"test it: python -m pytest test_{name}.py")
        output.say(f"serve it beside others: --tools {name}.py")
    return ExitCode.COMPLETED


def _check_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii() or len(name) > _MOST_CHARACTERS:
        raise CommandRefused(
            f"{name[:50]!r} is no name of a worker: ASCII letters, digits and _, no digit first, no word of Python"
        )
    if name in sys.stdlib_module_names or (not Path(f"{name}.py").exists() and importlib.util.find_spec(name)):
        raise CommandRefused(f"{name!r} is the name of an installed module, which {name}.py would hide; choose another")
    if name in load_toolset(load_settings()).built_in:
        raise CommandRefused(f"{name!r} is the name of a tool that is built in; choose another")
