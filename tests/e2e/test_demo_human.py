"""`make demo-human`: the run requests two answers, the printed commands send them, and the run continues."""

import shlex

import pytest

from tests.e2e.command import ROOT, CommandLine, commands_of_make, read_line_with, wait_for_exit

pytestmark = pytest.mark.server


async def test_demo_continues_after_the_printed_commands_are_run(commands_with_private_server: CommandLine) -> None:
    make_commands = await commands_of_make("demo-human")
    [arguments] = [
        words for program, *words in make_commands if (program, words[:1]) == (".venv/bin/dagwright", ["run"])
    ]
    demo = await commands_with_private_server.start(*(str(ROOT / word) if "/" in word else word for word in arguments))

    # The first request opens at once, the second when the total is known.
    request_lines = [await read_line_with(demo, "asked "), await read_line_with(demo, "answer ")]
    request_lines += [await read_line_with(demo, "asked "), await read_line_with(demo, "answer ")]
    assert [line.rstrip().partition("  ")[2].partition(" dagwright feedback run-")[0] for line in request_lines] == [
        "asked      channels waits for anyone: Where shall it be published?",
        "answer    ",
        "asked      check waits for ann: The total is 860. Publish it?",
        "answer    ",
    ]
    assert request_lines[1].rstrip().endswith(" channels --select web  (or print, mail; repeatable)")
    assert request_lines[3].rstrip().endswith(" check --approve  (or --reject)")
    select_result = await commands_with_private_server(*_command_arguments(request_lines[1]), "--select", "mail")
    approve_result = await commands_with_private_server(*_command_arguments(request_lines[3]), "--by", "ann")

    assert [(each.code, each.stderr) for each in (select_result, approve_result)] == [(0, ""), (0, "")]
    result = await wait_for_exit(demo)
    assert (result.code, result.stderr) == (0, "")
    assert result.stdout.endswith("Published by web and mail: the total is 860.\n")


def _command_arguments(line: str) -> list[str]:
    """Return the arguments of the `dagwright` command that a line shows."""
    return shlex.split(line.partition("dagwright ")[2].partition("  (")[0])
