"""`ask --profile rounds` answers a question with worker tools of a file and a scripted model."""

import pytest

from dagwright.testing import ModelServer
from tests.e2e.command import CommandLine, with_model
from tests.support.rounds import continue_response, done_response, ref, sub_goal

pytestmark = pytest.mark.server

WORKER_TOOLS = '''
from dagwright.tools import WorkerResult, worker_tool

@worker_tool(outputs=["total"], goal_type="support")
def count(name: str) -> WorkerResult:
    """Counts the shipments of a carrier."""
    if name == "Unknown":
        raise ValueError("there is no carrier Unknown")
    return WorkerResult(status="partial", outputs={"total": len(name)}, message="of this year alone")

@worker_tool(outputs=["table"], goal_type="deliverable", requires=["total"])
def show(total: float | None = None) -> dict:
    """Shows a count."""
    return {"table": f"| {total} |"}
'''
SCRIPT = (
    "How many shipments does Maersk have?",
    continue_response(
        sub_goal(1, "count", name="Maersk"), sub_goal(2, "count", name="Unknown"), reasoning="Count\nboth."
    ),
    continue_response(sub_goal(3, "show", total=ref(1, "total")), reasoning="Show it."),
    done_response(reasoning="There it is.", table=ref(3, "table")),
)
ROUNDS_OPTIONS = ("--profile", "rounds", "--tools", "workers.py")
ANSWER = ["| 6.0 |", "", "Incomplete:", "- count: partial: of this year alone"]


@pytest.fixture(autouse=True)
def _worker_tools(commands: CommandLine) -> None:
    (commands.folder / "workers.py").write_text(WORKER_TOOLS, encoding="utf-8")


async def test_rounds_are_printed_before_the_answer(commands: CommandLine) -> None:
    ask_arguments = ("ask", "How many?", *ROUNDS_OPTIONS, "--id", "rounds-reported")
    async with ModelServer(*SCRIPT) as model_server:
        result = await with_model(commands, model_server)(*ask_arguments)
        repeated_result = await with_model(commands, model_server)(*ask_arguments, "--json")
        different_result = await with_model(commands, model_server)(*ask_arguments, "--max-rounds", "3", "--json")
    assert (result.code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    first_index = lines.index("Interpretation: How many shipments does Maersk have?")
    assert lines[first_index + 1 : first_index + 7] == [
        *("Round 1 (continue): Count both.", "  sg1 count: partial: of this year alone"),
        *("  sg2 count: failed: tool_failed: there is no carrier Unknown", "Round 2 (continue): Show it."),
        *("  sg3 show: success", "Round 3 (done): There it is."),
    ]
    assert lines[first_index + 7 : first_index + 11] == ANSWER
    assert (repeated_result.code, repeated_result.document["rounds"]["final_response"]) == (0, "\n".join(ANSWER))
    assert repeated_result.document["rounds"]["max_rounds"] == 10
    # The same request with another `--max-rounds` is a different request.
    assert (different_result.code, different_result.document["code"]) == (2, "run_id_in_use")


async def test_rounds_are_printed_once_on_a_terminal_at_the_end(commands: CommandLine) -> None:
    ask_arguments = ("ask", "How many?", *ROUNDS_OPTIONS, "--id", "rounds-on-terminal")
    async with ModelServer(*SCRIPT) as model_server:
        code, screen = await with_model(commands, model_server).run_on_terminal(*ask_arguments)
    assert code == 0
    frames, _, end_of_screen = screen.partition("completed")
    # The frames before the last frame depend on timing.
    assert "How many?" in frames
    # The last frame shows no round. After this frame, each round is listed once.
    for text in ("Round 1 (continue): Count both.", "Round 1", "sg3 show"):
        assert end_of_screen.count(text) == 1
    assert end_of_screen.index("Round 3 (done)") < end_of_screen.index("| 6.0 |")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--profile", "rounds"], "there is no worker tool; name a module or file of functions with @worker_tool"),
        ([*ROUNDS_OPTIONS, "--plan-only"], "--plan-only: not available with --profile rounds"),
    ],
)
async def test_invalid_options_start_no_rounds(commands: CommandLine, options: list[str], message: str) -> None:
    result = await commands("ask", "How many?", *options)
    assert (result.code, message in result.stderr) == (2, True)


async def test_fork_that_repeats_a_sub_goal_replans_the_later_rounds(commands: CommandLine) -> None:
    ask_arguments = ("ask", "How many?", *ROUNDS_OPTIONS, "--id", "rounds-forked", "--synthesis", "model", "--json")
    async with ModelServer(*SCRIPT, "It has 6.", *SCRIPT[2:], "It still has 6.") as model_server:
        model_commands = with_model(commands, model_server)
        await model_commands(*ask_arguments)
        preview_result = await model_commands("fork", "rounds-forked", "--rerun", "sg1")
        fork_result = await model_commands("fork", "rounds-forked", "--rerun", "sg1", "--yes", "--json")
        watch_result = await model_commands("watch", fork_result.document["fork_run_id"], "--json")
        new_calls = [(str(call.metadata["node_id"]), str(call.metadata["purpose"])) for call in model_server.calls[5:]]
    nodes_planned_again = ["plan#2", "sg3", "plan#3", "answer"]
    last_line = f"planned again by a model: {', '.join(nodes_planned_again)}"
    assert preview_result.stdout.splitlines()[-1] == last_line
    assert fork_result.document["difference"]["planned_again"] == nodes_planned_again
    assert (watch_result.code, watch_result.document["output"]) == (0, "It still has 6.")
    # Calls before the sub-goal are not repeated.
    assert new_calls == [("plan#2", "planner"), ("plan#3", "planner"), ("answer", "answer")]
    assert watch_result.document["rounds"]["phase"] == "done"
