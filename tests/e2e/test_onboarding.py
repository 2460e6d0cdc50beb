"""Onboarding from the command line: problems of a request are reported before anything starts."""

import pytest

from tests.e2e.command import ROOT, CommandLine, line_with, wait_for_exit

pytestmark = pytest.mark.server

SEEDS = ROOT / "examples" / "seeds"
EXAMPLES = ROOT / "examples" / "onboarding"


async def test_invalid_request_starts_no_run(command_line: CommandLine) -> None:
    plan = SEEDS / "intents_session.json"
    run_result = await command_line("run", str(plan), "--id", "wrong-session")
    status_result = await command_line("status", "wrong-session", "--json")
    assert (run_result.code, run_result.stdout) == (2, "")
    assert run_result.stderr == (
        f"{plan}: missing_context at /intents/0/refs/cbu-id: intent 1: 'cbu-id' is @cbu, which the session does not "
        "have (give it in the context: cbu=ID)\n"
    )
    assert (status_result.code, status_result.document["status"]) == (2, "not_found")


async def test_unknown_party_in_an_answer_opens_a_new_request(own_command_line: CommandLine) -> None:
    maria = "lookup:person:Maria Garcia"
    assert (await own_command_line("entities", "load", str(EXAMPLES / "parties.csv"))).code == 0
    run = await own_command_line.start("run", str(EXAMPLES / "which_director.json"), "--id", "again")
    await line_with(run, f"{maria} waits for anyone: Which person is meant by 'Maria Garcia'?")
    invalid_result = await own_command_line("feedback", "again", maria, "--text", "Nobody Whoever")
    feedback_result = await own_command_line("feedback", "again", f"{maria}#2", "--text", "Sarah Chen")
    run_result = await wait_for_exit(run)
    message = f"{maria!r} is answered; new request: {maria}#2 waits for anyone: No party found for person "
    assert (invalid_result.code, invalid_result.stdout.startswith(message)) == (0, True)
    assert (feedback_result.code, feedback_result.stdout) == (0, f"{maria + '#2'!r} is answered\n")
    status, explanation = [await own_command_line(command, "again") for command in ("status", "explain")]
    for each in (run_result, status, explanation):
        each.check_success()
        assert "'Maria Garcia' is Sarah Chen (person, HK, " in each.stdout
    # The output also lists the result of each intent.
    assert "cbu.ensure: " in run_result.stdout
