"""The two commands for each question in `examples/maritime/README.md` print the documented answer, without a key."""

import asyncio
import os
import shlex
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.command import ROOT, CommandLine, ProcessResult, wait_for_exit
from tests.support.docs import Block, blocks_of, links_of, prints_expected_output
from tests.support.search import Maritime

PAGE = ROOT / "examples" / "maritime" / "README.md"
QUESTION_BLOCKS = [block for block in blocks_of(PAGE) if block.language == "console"]


def commands_of(block: Block) -> list[str]:
    return [line[2:] for line in block.text.splitlines() if line.startswith("$ ")]


def script_of(block: Block) -> Path:
    return Path(shlex.split(commands_of(block)[0])[3])


@asynccontextmanager
async def script_server(command: str) -> AsyncIterator[str]:
    """Serve the script of a command on a free port; yield the address, then assert that the script was followed."""
    arguments = shlex.split(command)
    assert (arguments[:3], arguments[4:]) == (["python", "-m", "dagwright.testing"], ["--port", "8081"])
    program = (sys.executable, *arguments[1:4])
    process = await asyncio.create_subprocess_exec(*program, cwd=ROOT, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.send_signal(signal.SIGTERM)
        result = await wait_for_exit(process)
    assert (result.code, result.stderr) == (0, "")


async def run_command(command: str, environment: Mapping[str, str]) -> ProcessResult:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = ["bash", "-euo", "pipefail", "-c", command]
    variables = {**environment, "PATH": path}
    return await wait_for_exit(
        await asyncio.create_subprocess_exec(*script, cwd=ROOT, env=variables, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
    )


@pytest.mark.server
@pytest.mark.search
@pytest.mark.parametrize("block", QUESTION_BLOCKS, ids=lambda block: script_of(block).stem)
async def test_question_has_the_documented_answer(block: Block, commands: CommandLine, maritime: Maritime) -> None:
    serve_command, ask_command = commands_of(block)
    search_variables = {
        "DAGWRIGHT_OPENSEARCH_URL": maritime.search.address,
        "DAGWRIGHT_OPENSEARCH_PREFIX": maritime.indices.prefix,
        "OPENAI_API_KEY": "none",
        "DAGWRIGHT_MODEL": "scripted-model",
    }
    async with script_server(serve_command) as address:
        result = await run_command(
            ask_command, {**commands.environment, **search_variables, "OPENAI_BASE_URL": address}
        )
    result.check_success()
    assert prints_expected_output(block, result.stdout), result.stdout


def test_page_has_each_script_once_and_its_links_exist() -> None:
    scripts = sorted(path.relative_to(ROOT) for path in PAGE.parent.glob("*.yaml"))
    assert sorted(map(script_of, QUESTION_BLOCKS)) == scripts
    assert [link for link in links_of(PAGE) if not (PAGE.parent / link.partition("#")[0]).exists()] == []
