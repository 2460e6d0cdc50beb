"""`make demo-intents`: the demo continues after a kill, and a second demo changes nothing."""

import pytest

from dagwright.server import LocalServer
from dagwright.settings import Settings
from tests.e2e.command import CommandLine, kill_process, read_line_with, wait_for_exit

pytestmark = pytest.mark.server

_DEMO = ("tests/support/short_heartbeat_demo.py",)


async def test_demo_continues_after_a_kill_and_then_changes_nothing(commands_that_start_a_server: CommandLine) -> None:
    # With `--pace 2`, the second step cannot end before the kill, even on a busy machine.
    first_demo = await commands_that_start_a_server.start("--pace", "2", program=_DEMO)
    await read_line_with(first_demo, "completed  @result_1")
    await kill_process(first_demo)

    second_result = await wait_for_exit(await commands_that_start_a_server.start("--pace", "0", program=_DEMO))
    assert (second_result.code, second_result.stderr) == (0, "")
    assert "run onboarding-demo-1 was interrupted and continues\n" in second_result.stdout
    assert "onboarding-demo-1: completed in " in second_result.stdout
    assert "after:  person 15, company 12, fund 7, role 2, product 2, relation 1\n" in second_result.stdout
    assert "Apex Capital Fund (LU)    DIRECTOR: John Smith (GB)" in second_result.stdout

    third_result = await wait_for_exit(await commands_that_start_a_server.start("--pace", "0", program=_DEMO))
    third_result.check_success()
    assert "onboarding-demo-2: completed in " in third_result.stdout
    assert "nothing changed: every step was already done\n" in third_result.stdout
    assert LocalServer(Settings(state_dir=commands_that_start_a_server.folder / "state")).is_persistent()
