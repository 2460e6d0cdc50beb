"""`make demo`: an order continues after a kill, and each lamp of an order is packed once."""

import re

import pytest

from dagwright.server import LocalServer
from dagwright.settings import Settings
from tests.e2e.command import CommandLine, demo_program_of, read_line_with, stop_process, wait_for_exit

pytestmark = pytest.mark.server

SHOP_LOG = [*(f"packed a {lamp} lamp" for lamp in ("desk", "floor", "wall", "ceiling")), "shipped 4 parcels"]


def read_shop_log(stdout: str) -> list[str]:
    _, _, log = stdout.partition("$ cat shop.log\n")
    return [entry for entry, _ in re.findall(r"^(.+) \((dw1_\w+)\)$", log, re.MULTILINE)]


async def test_order_of_the_demo_continues_after_a_kill(commands_that_start_a_server: CommandLine) -> None:
    program = await demo_program_of("demo")
    result = (await wait_for_exit(await commands_that_start_a_server.start(program=program))).check_success()
    output_before_kill, separator, output_after_kill = result.stdout.partition("\n$ kill -9 ")
    assert separator
    assert "completed" in output_before_kill
    assert "run demo-order-1 already exists with the same plan; continuing it\n" in output_after_kill
    assert "demo-order-1 (Lamp order): completed in " not in output_before_kill
    assert "demo-order-1 (Lamp order): completed in " in output_after_kill
    assert read_shop_log(result.stdout) == SHOP_LOG
    assert LocalServer(Settings(state_dir=commands_that_start_a_server.folder / "state")).is_persistent()


async def test_interrupted_demo_continues_and_the_next_demo_starts_a_new_order(
    commands_that_start_a_server: CommandLine,
) -> None:
    program = await demo_program_of("demo")
    first_demo = await commands_that_start_a_server.start(program=program)
    await read_line_with(first_demo, "run demo-order-1 already exists")
    await stop_process(first_demo)

    second_result = (await wait_for_exit(await commands_that_start_a_server.start(program=program))).check_success()
    assert second_result.stdout.startswith("run demo-order-1 was interrupted and continues\n")
    assert read_shop_log(second_result.stdout) == SHOP_LOG

    third_result = (await wait_for_exit(await commands_that_start_a_server.start(program=program))).check_success()
    assert third_result.stdout.startswith("run demo-order-2 starts\n")
    assert read_shop_log(third_result.stdout) == SHOP_LOG
