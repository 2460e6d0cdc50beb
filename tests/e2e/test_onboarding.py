"""Onboarding by the command line: what is wrong with a request is told before anything starts."""

import json

import pytest

from tests.e2e.command import ROOT, CommandLine, ended, line_with

pytestmark = pytest.mark.server

SEEDS = ROOT / "examples" / "seeds"
EXAMPLES = ROOT / "examples" / "onboarding"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "intents_circular.json",
            [
                "cycle at /intents/0: CircularDependencyError: @result_1 → @result_2 → @result_1 "
                "(remove one of these dependencies)"
            ],
        ),
        (
            "intents_result_of_nothing.json",
            [
                "invalid_reference at /intents/0/refs/entity-id: Invalid reference: @result_2: nothing makes it "
                "(@result_N is what intent N of this request makes; use lookups for what exists already)",
                "self_dependency at /intents/0: '@result_1' depends on itself "
                "(@result_N is what intent N of this request makes; use lookups for what exists already)",
            ],
        ),
        (
            "intents_session.json",
            [
                "missing_context at /intents/0/refs/cbu-id: intent 1: 'cbu-id' is @cbu, "
                "which the session does not have (give it with --context cbu=ID)"
            ],
        ),
    ],
)
async def test_wrong_request_is_refused_with_its_words_before_anything_starts(
    command_line: CommandLine, name: str, told: list[str]
) -> None:
    end = await command_line("run", str(SEEDS / name), "--id", f"wrong-{name}")
    there = await command_line("status", f"wrong-{name}", "--json")
    assert (end.code, end.stdout) == (2, "")
    assert end.stderr.splitlines() == [f"{SEEDS / name}: {line}" for line in told]
    assert (there.code, there.document["status"]) == (2, "not_found")


async def test_forward_reference_runs_in_the_right_order_with_a_note(own_command_line: CommandLine) -> None:
    plan = str(SEEDS / "intents_forward_reference.json")
    checked = await own_command_line("check", plan, "--json")
    end = await own_command_line("run", plan, "--json")
    document = end.document
    assert json.loads(checked.stdout)["notes"] == [
        {
            "code": "forward_reference",
            "message": "intent 1 uses @result_2, which stands after it; intent 2 runs first",
            "node": "@result_1",
        }
    ]
    assert (end.code, document["status"]) == (0, "completed")
    assert document["nodes"]["@result_2"]["ended_at"] <= document["nodes"]["@result_1"]["started_at"]


async def test_answer_that_finds_nobody_says_what_is_asked_again_and_the_run_who_was_bound(
    own_command_line: CommandLine,
) -> None:
    maria = "lookup:person:Maria Garcia"
    assert (await own_command_line("entities", "load", str(EXAMPLES / "parties.csv"))).code == 0
    run = await own_command_line.start("run", str(EXAMPLES / "which_director.json"), "--id", "again")
    await line_with(run, f"{maria} waits for anyone: Which person is meant by 'Maria Garcia'?")
    wrong = await own_command_line("feedback", "again", maria, "--text", "Nobody Whoever")
    given = await own_command_line("feedback", "again", f"{maria}#2", "--text", "Sarah Chen")
    end = await ended(run)
    told = f"{maria!r} is answered; something is asked again: {maria}#2 waits for anyone: No party found for person "
    assert (wrong.code, wrong.stdout.startswith(told)) == (0, True)
    assert (given.code, given.stdout) == (0, f"{maria + '#2'!r} is answered\n")
    status, why = [await own_command_line(command, "again") for command in ("status", "why")]
    for shown in (end, status, why):
        assert shown.code == 0
        assert "'Maria Garcia' is Sarah Chen (person, HK, " in shown.stdout
    # The fund is in no output, since others go on with it.
    assert "cbu.ensure: " in end.stdout
