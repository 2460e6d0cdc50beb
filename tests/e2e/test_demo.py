"""`make demo`: an order continues after a kill; each lamp is packed once, also in the next order."""

import re
import signal

import pytest

from dagwright.server import LocalServer
from dagwright.settings import Settings
from tests.e2e.command import CommandLine, demo_of_make, line_with, wait_for_exit

pytestmark = pytest.mark.server

SHOP = [*(f"packed a {lamp} lamp" for lamp in ("desk", "floor", "wall", "ceiling")), "shipped 4 parcels"]


def shop_log(stdout: str) -> list[str]:
    _, _, after = stdout.partition("$ cat shop.log\n")
    return [entry for entry, _ in re.findall(r"^(.+) \((dw1_\w+)\)$", after, re.MULTILINE)]


async def test_demo_kills_an_order_and_continues_it(commands_in_own_folder: CommandLine) -> None:
    program = await demo_of_make("demo")
    result = (await wait_for_exit(await commands_in_own_folder.start(program=program))).check_success()
    before, separator, after = result.stdout.partition("\n$ kill -9 ")
    assert separator
    assert ["completed" in before, "run demo-order-1 already exists with the same plan; continuing it\n" in after] == [
        True
    ] * 2
    assert "demo-order-1 (Lamp order): completed in " not in before
    assert "demo-order-1 (Lamp order): completed in " in after
    assert shop_log(result.stdout) == SHOP
    assert LocalServer(Settings(state_dir=commands_in_own_folder.folder / "state")).is_persistent()


async def test_interrupted_demo_continues_and_the_next_demo_starts_a_new_order(
    commands_in_own_folder: CommandLine,
) -> None:
    program = await demo_of_make("demo")
    first = await commands_in_own_folder.start(program=program)
    await line_with(first, "run demo-order-1 already exists")
    first.send_signal(signal.SIGTERM)
    await wait_for_exit(first)

    second = (await wait_for_exit(await commands_in_own_folder.start(program=program))).check_success()
    assert second.stdout.startswith("run demo-order-1 was interrupted and continues\n")
    assert shop_log(second.stdout) == SHOP

    third = (await wait_for_exit(await commands_in_own_folder.start(program=program))).check_success()
    assert third.stdout.startswith("run demo-order-2 starts\n")
    assert shop_log(third.stdout) == SHOP
