"""`ask --profile rounds`: a question is planned round by round, and answered from what workers found."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dagwright.client.requests import PreparedRequest, SessionTurn, TextRequest, prepare_request
from dagwright.client.starts import NO_EXTRAS, RunOptions, StartRequest
from dagwright.history.run_reader import RunView
from dagwright.interfaces.cli.endings import tell_answer
from dagwright.interfaces.cli.exits import CommandRefused
from dagwright.interfaces.cli.model_needed import model_config, refuse_without_model
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.interfaces.cli.plans import read_policy, read_tags
from dagwright.interfaces.cli.preparing import deadline_s_of, seconds_of_option
from dagwright.interfaces.cli.requests import AskRequest
from dagwright.interfaces.cli.running import Showing, run_prepared
from dagwright.interfaces.cli.session_turns import run_in_session
from dagwright.interfaces.cli.terms import read_budget
from dagwright.planner import GoalRefused
from dagwright.protocol.sessions import Session, session_name
from dagwright.settings import Settings
from dagwright.toolset.toolset import Toolset, load_toolset, references_of


def ask_in_rounds(request: AskRequest, settings: Settings, output: Output) -> int:
    """Answers a question in rounds of workers, and returns the exit code.

    Raises:
        CommandRefused: nothing can come of it.
    """
    toolset = load_toolset(settings, references_of(request.tools, request.agents))
    # Before there is a server: what is wrong with a question is wrong in every session.
    prepared = prepared_rounds(request, toolset, output)
    refuse_without_model(request.model, settings, toolset, is_detached=request.is_detached)
    showing = Showing(_tell, output)
    if request.session is not None:
        name = session_name(request.session)
        turn = SessionTurn(name, request.words, lambda session: prepared_rounds(request, toolset, output, session))
        return run_in_session(turn, request, toolset, showing=showing, settings=settings)
    return run_prepared(prepared, request, toolset, showing=showing, settings=settings)


def refuse_options(request: AskRequest) -> None:
    """Refuses options that other profiles have."""
    of_others = {
        "--plan-only": request.is_plan_only,
        "--approve-plan": request.asks_first,
        "--max-repairs": request.max_repairs is not None,
        "--max-replans": request.max_replans is not None,
        "--context": request.context,
        "--confidence": request.confidence is not None,
    }
    if given := [name for name, value in of_others.items() if value]:
        raise CommandRefused(f"{' and '.join(given)}: --profile rounds has no such option; leave it out")


def prepared_rounds(
    request: AskRequest, toolset: Toolset, output: Output, session: Session | None = None
) -> StartRequest:
    """Returns the run of a question.

    Args:
        session: what is known of the one whose turn it is; `None` if there is none.

    Raises:
        CommandRefused: nothing can come of it.
    """
    refuse_options(request)
    # Nobody is asked anything in such a run, a person at this terminal neither.
    budget = read_budget(request.budget, is_asking=False)
    beside = replace(NO_EXTRAS, budget=budget, all_or_nothing=request.is_all_or_nothing)
    options = RunOptions(
        deadline_s_of(request.timeout),
        read_policy(request.policy_file),
        beside=beside,
        tags=read_tags(request.tags),
    )
    asked = TextRequest(
        request.words,
        model_config(request.model),
        options,
        profile="rounds",
        max_rounds=request.rounds,
        worker_timeout_s=seconds_of_option("--worker-timeout", request.worker_timeout),
        synthesis=request.synthesis,
    )
    return prepared_or_refused(asked, toolset, output, session).start


def prepared_or_refused(
    asked: TextRequest, toolset: Toolset, output: Output, session: Session | None
) -> PreparedRequest:
    """Returns the run of a request, and tells what is worth saying of it.

    Raises:
        CommandRefused: nothing can come of it.
    """
    try:
        prepared = prepare_request(asked, toolset, session)
    except GoalRefused as refused:
        raise CommandRefused(str(refused), status=refused.code) from None
    if prepared.note is not None:
        output.tell(one_line(prepared.note, limit=1_000))
    return replace(prepared, start=replace(prepared.start, tools=toolset.references))


def _tell(view: RunView, document: Mapping[str, Any], output: Output) -> None:
    if output.is_json:
        output.document(document)
    else:
        tell_answer(view, document, output)
