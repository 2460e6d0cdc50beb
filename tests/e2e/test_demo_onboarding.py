"""`make demo-onboarding` asks once which of two directors is meant, and creates the fund after the answer."""

import asyncio
from typing import Any

import pytest

from tests.e2e.command import ROOT, CommandLine, commands_of_make, demo_program_of, wait_for_exit
from tests.support.eventually import eventually

pytestmark = pytest.mark.server

SECOND_PROCESS_ANSWERS = "no terminal, so a second process answers: dagwright feedback which-director-"
PARTIES = str(ROOT / "examples" / "onboarding" / "parties.csv")


async def onboarding_demo_program() -> tuple[str, ...]:
    *_, load_command, _ = await commands_of_make("demo-onboarding")
    assert load_command == [".venv/bin/dagwright", "entities", "load", "examples/onboarding/parties.csv"]
    return await demo_program_of("demo-onboarding")


def rows_of(stdout: str) -> list[str]:
    lines = stdout.splitlines()
    title_index = next(index for index, line in enumerate(lines) if "rows in the database" in line)
    return [" ".join(line.split()) for line in lines[title_index + 1 :] if line.strip()]


def expected_rows(director: str) -> list[str]:
    return [
        "company Iberia ManCo S.à r.l. LU, active",
        "fund Iberia Growth Fund LU, fund, active",
        f"role Iberia Growth Fund (LU) DIRECTOR: {director}",
        f"role Iberia ManCo S.à r.l. (LU) DIRECTOR: {director}",
        "product Iberia Growth Fund (LU) CUSTODY",
        "product Iberia Growth Fund (LU) FUND_ACCOUNTING",
        "relation Iberia Growth Fund (LU) is managed by Iberia ManCo S.à r.l. (LU)",
    ]


@pytest.mark.slow
@pytest.mark.fresh
async def test_demo_without_a_terminal_answers_its_request(commands_with_private_server: CommandLine) -> None:
    program = await onboarding_demo_program()
    load_result = await commands_with_private_server("entities", "load", PARTIES)
    assert load_result.code == 0, load_result.stderr
    result = await wait_for_exit(await commands_with_private_server.start(program=program))
    assert (result.code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert len([line for line in lines if line.startswith(SECOND_PROCESS_ANSWERS)]) == 1
    assert rows_of(result.stdout) == expected_rows("Maria García (ES)")


async def test_demo_continues_after_an_answer_from_a_second_terminal(commands_with_private_server: CommandLine) -> None:
    program = await onboarding_demo_program()
    load_result = await commands_with_private_server("entities", "load", PARTIES)
    assert load_result.code == 0, load_result.stderr
    demo = asyncio.create_task(commands_with_private_server.run_on_terminal(program=program))
    requests: list[dict[str, Any]] = []

    async def has_requests() -> bool:
        inbox = await commands_with_private_server("inbox", "--json")
        requests[:] = inbox.document["requests"] if inbox.code == 0 else []
        return bool(requests)

    await eventually(has_requests)
    (request,) = requests
    (option_id,) = [option["id"] for option in request["options"] if "María Garcia" in option["label"]]
    feedback_result = await commands_with_private_server(
        "feedback", request["run_id"], request["request_id"], "--select", option_id
    )
    code, screen = await demo
    assert (request["type"], feedback_result.code, code) == ("SELECTION", 0, 0)
    assert SECOND_PROCESS_ANSWERS not in screen
    assert rows_of(screen) == expected_rows("María Garcia (LU)")
