"""`ask`: a request in words becomes a run whose plan a model writes, and ends with an answer."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dagwright.client.requests import PreparedRequest, SessionTurn, TextRequest
from dagwright.client.starts import NO_EXTRAS, RunOptions, StartRequest
from dagwright.history.run_reader import RunView
from dagwright.interfaces.cli.connecting import command_settings
from dagwright.interfaces.cli.endings import failure_lines, mend_lines, summary_line, tell_answer
from dagwright.interfaces.cli.exits import CommandRefused
from dagwright.interfaces.cli.model_needed import model_config, refuse_without_model
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.plan_approval import approve_on_terminal
from dagwright.interfaces.cli.plans import read_context, read_policy, read_tags
from dagwright.interfaces.cli.preparing import deadline_s_of
from dagwright.interfaces.cli.requests import AskRequest
from dagwright.interfaces.cli.rounds import ask_in_rounds, prepared_or_refused, prepared_rounds
from dagwright.interfaces.cli.running import Showing, run_prepared
from dagwright.interfaces.cli.session_turns import run_in_session
from dagwright.interfaces.cli.terms import read_budget
from dagwright.planning.plan_and_execute.goals import context_from_json
from dagwright.protocol.sessions import Session, session_name
from dagwright.settings import Settings
from dagwright.toolset.toolset import Toolset, load_toolset, references_of


def ask(request: AskRequest, output: Output) -> int:
    """Plans and runs what is asked for, and returns the exit code.

    Raises:
        CommandRefused: nothing can come of it.
    """
    return ask_with(request, command_settings(), output)


def ask_with(request: AskRequest, settings: Settings, output: Output) -> int:
    """Plans and runs what is asked for as the settings say, and returns the exit code.

    Raises:
        CommandRefused: nothing can come of it.
    """
    if request.profile == "rounds":
        return ask_in_rounds(request, settings, output)
    if request.is_plan_only and request.asks_first:
        raise CommandRefused(
            "with --plan-only nothing is run, so there is nothing to approve: leave one of the two out"
        )
    if request.is_plan_only and request.is_detached:
        raise CommandRefused(
            "--plan-only writes the plan when it is there, and --detach does not wait for it: leave one of the two out"
        )
    _refuse_options(request)
    toolset = load_toolset(settings, references_of(request.tools, request.agents))
    name = session_name(request.session) if request.session is not None else None
    # Before there is a server: what is wrong with a request is wrong in every session.
    prepared = _prepared(request, toolset, output)
    refuse_without_model(request.model, settings, toolset, is_detached=request.is_detached)
    if request.is_plan_only:
        # Nothing but the plan is to stand on stdout.
        tell = _tell_plan if output.is_json else _tell_plan_or_why_none
        showing = Showing(tell, Output(is_json=True))
    else:
        is_asked = prepared.may_ask_first and request.is_asking and not request.is_detached and output.can_ask
        showing = Showing(_tell_answer, output, approve_on_terminal if is_asked else None)
    if name is not None:
        turn = SessionTurn(name, request.words, lambda session: _prepared(request, toolset, output, session).start)
        return run_in_session(turn, request, toolset, showing=showing, settings=settings)
    return run_prepared(prepared.start, request, toolset, showing=showing, settings=settings)


def prepare_request(
    request: AskRequest, toolset: Toolset, output: Output, session: Session | None = None
) -> StartRequest:
    """Returns the run of a request that is a turn of a session.

    Args:
        session: what is known of it; `None` if nothing is.

    Raises:
        CommandRefused: nothing can come of the request.
    """
    if request.profile == "rounds":
        return prepared_rounds(request, toolset, output, session)
    _refuse_options(request)
    return _prepared(request, toolset, output, session).start


def _refuse_options(request: AskRequest) -> None:
    """Refuses options that the other profile has."""
    of_rounds = {
        "--rounds": request.rounds,
        "--worker-timeout": request.worker_timeout,
        "--synthesis": request.synthesis,
    }
    if given := [name for name, value in of_rounds.items() if value is not None]:
        raise CommandRefused(f"{' and '.join(given)}: only --profile rounds has that")
    if request.profile == "plan":
        of_intents = {"--context": request.context, "--confidence": request.confidence is not None}
        if given := [name for name, value in of_intents.items() if value]:
            raise CommandRefused(f"{' and '.join(given)}: only --profile intents has that")
    elif request.max_replans:
        raise CommandRefused("--max-replans: --profile intents never plans again; leave it out")


def _prepared(request: AskRequest, toolset: Toolset, output: Output, session: Session | None = None) -> PreparedRequest:
    """Returns the run of a request.

    Args:
        session: what is known of the one whose turn it is; `None` if there is none.
    """
    budget = read_budget(request.budget, is_asking=request.is_asking)
    is_whole, asks = request.is_all_or_nothing, request.is_asking
    beside = replace(NO_EXTRAS, budget=budget, all_or_nothing=is_whole, asks=asks)
    asked = TextRequest(
        request.words,
        model_config(request.model),
        RunOptions(
            deadline_s_of(request.timeout),
            read_policy(request.policy_file),
            beside=beside,
            tags=read_tags(request.tags),
        ),
        profile="intents" if request.profile == "intents" else "plan",
        max_repairs=request.max_repairs,
        max_replans=request.max_replans,
        context=_context(request),
        confidence=request.confidence,
        asks_first=request.asks_first,
        ends_with_plan=request.is_plan_only,
    )
    return prepared_or_refused(asked, toolset, output, session)


def _context(request: AskRequest) -> Mapping[str, Mapping[str, Any]]:
    try:
        return context_from_json(read_context(request.context))
    except ValueError as error:
        raise CommandRefused(f"--{error}") from None


def _tell_answer(view: RunView, document: Mapping[str, Any], output: Output) -> None:
    if output.is_json:
        output.document(document)
    else:
        tell_answer(view, document, output)


def _tell_plan(view: RunView, document: Mapping[str, Any], output: Output) -> None:
    """Writes the plan of a run that ended with it; the document of one that found none."""
    if view.status == "completed":
        output.document(document["output"])
    else:
        output.document(document)


def _tell_plan_or_why_none(view: RunView, document: Mapping[str, Any], output: Output) -> None:
    """Writes the plan of a run that ended with it; of one that found none says why, on stderr."""
    for line in mend_lines(document):
        output.tell(line)
    if view.status == "completed":
        output.document(document["output"])
        return
    output.tell(summary_line(view, document))
    for line in failure_lines(document):
        output.tell(line)
