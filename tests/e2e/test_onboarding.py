"""Onboarding from the command line: a plan without its context, and an answer that names an unknown party."""

import pytest

from tests.e2e.command import ROOT, CommandLine, read_line_with, wait_for_exit

pytestmark = pytest.mark.server

SEEDS = ROOT / "examples" / "seeds"
EXAMPLES = ROOT / "examples" / "onboarding"


async def test_plan_without_its_context_starts_no_run(commands: CommandLine) -> None:
    plan = SEEDS / "intents_session.json"
    run_result = await commands("run", str(plan), "--id", "wrong-session")
    status_result = await commands("status", "wrong-session", "--json")
    assert (run_result.code, run_result.stdout) == (2, "")
    assert run_result.stderr == (
        f"{plan}: missing_context at /intents/0/refs/cbu-id: intent 1: 'cbu-id' is @cbu, which the session does not "
        "have (give it in the context: cbu=ID)\n"
    )
    assert (status_result.code, status_result.document["code"]) == (2, "not_found")


async def test_unknown_party_in_an_answer_opens_a_new_request(commands_with_private_server: CommandLine) -> None:
    request_id = "lookup:person:Maria Garcia"
    assert (await commands_with_private_server("entities", "load", str(EXAMPLES / "parties.csv"))).code == 0
    run_process = await commands_with_private_server.start(
        "run", str(EXAMPLES / "which_director.json"), "--id", "again"
    )
    await read_line_with(run_process, f"{request_id} waits for anyone: Which person is meant by 'Maria Garcia'?")
    unknown_party_result = await commands_with_private_server("feedback", "again", request_id, "--text", "Quentin Zzyx")
    feedback_result = await commands_with_private_server("feedback", "again", f"{request_id}#2", "--text", "Sarah Chen")
    run_result = await wait_for_exit(run_process)
    message = f"{request_id!r} is answered; new request: {request_id}#2 waits for anyone: No party found for person "
    assert (unknown_party_result.code, unknown_party_result.stdout.startswith(message)) == (0, True)
    assert (feedback_result.code, feedback_result.stdout) == (0, f"{request_id + '#2'!r} is answered\n")
    status_result, explain_result = [
        await commands_with_private_server(command, "again") for command in ("status", "explain")
    ]
    for each in (run_result, status_result, explain_result):
        each.check_success()
        assert "'Maria Garcia' is Sarah Chen (person, HK, " in each.stdout
    # The output also lists the result of each intent.
    assert "cbu.ensure: " in run_result.stdout
