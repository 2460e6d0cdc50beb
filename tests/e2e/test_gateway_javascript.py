"""The gateway with OpenAI's client for JavaScript."""

import asyncio
import json
import platform
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.e2e.command import ROOT
from tests.e2e.conftest import APPROVAL_NODE, Serve, calculation, plan_of

pytestmark = [pytest.mark.server, pytest.mark.node]

CHAIN_PLAN = plan_of(calculation("sum", "1 + 2"), calculation("more", "{{sum.result}} * 2"), output="{{more.result}}")
APPROVAL_PLAN = plan_of(APPROVAL_NODE, output="{{check.result.approved}}")
CLIENT = ROOT / "tests" / "support" / "openai_client" / "client.mjs"


async def _install_client(folder: Path) -> tuple[str, str]:
    """Install the client, and link its packages into a folder with the test program.

    Returns:
        The paths of Node.js and of the test program.
    """
    packages = str(ROOT / "scripts" / "test-packages")
    install = await asyncio.create_subprocess_exec(packages, "openai_client", stdout=PIPE)
    result, _ = await install.communicate()
    assert install.returncode == 0
    modules = Path(result.decode().strip()) / "node_modules"
    program = folder / CLIENT.name
    program.write_text(CLIENT.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "node_modules").symlink_to(modules)
    machine = {"x86_64": "x64", "aarch64": "arm64"}[platform.machine()]
    return str(modules / f"node-linux-{machine}" / "bin" / "node"), str(program)


async def test_javascript_client_handles_every_kind_of_response(serve: Serve, tmp_path: Path) -> None:
    node, program = await _install_client(tmp_path)
    async with serve(plans={"chain": CHAIN_PLAN, "asking": APPROVAL_PLAN}) as gateway:
        process = await asyncio.create_subprocess_exec(node, program, f"{gateway.url}/v1", stdout=PIPE, stderr=PIPE)
        result, errors = await process.communicate()
    assert (process.returncode, errors.decode()) == (0, "")
    actual = json.loads(result)
    streams = actual.pop("streams")
    assert [stream["text"] for stream in streams.values()] == ["6", "6", "6"]
    assert (streams["content"]["events"], streams["progress"]["events"][-1]) == ([], "run.completed")
    assert actual.pop("responseEvents")[-1] == "run.completed"
    assert {"plan/asking", "plan/chain"} <= set(actual.pop("models"))
    assert actual == {
        **{"complete": "6", "runIdsMatch": True, "helper": "6", "approval": ["tool_calls", "answer_feedback", "true"]},
        **{"streamedApproval": "answer_feedback", "response": "6", "fetched": "6", "responseHelper": "6"},
        **{"streamedAgain": "6", "resumedStream": [True, "response.completed"], "error": [True, "model_not_found"]},
    }
