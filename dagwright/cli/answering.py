"""`feedback`: gives a run what it asks of people."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dagwright.cli.account import account_name
from dagwright.cli.answers import answer_of, options_for
from dagwright.cli.appending import nodes_in, tell_invalid
from dagwright.cli.async_runs import Farewell, run_async
from dagwright.cli.connecting import command_settings
from dagwright.cli.exits import CommandRefused, ExitCode
from dagwright.cli.forms import ask_answer
from dagwright.cli.output import Output, acted
from dagwright.cli.request_words import asking_line, field_lines, listed
from dagwright.cli.requests import AnswerRequest
from dagwright.client import open_runs
from dagwright.feed import RunClosed
from dagwright.people import Answer, AnswerRefused, ItemNotNamed, OpenRequest, People, Place, by_run, of_node
from dagwright.plan.errors import PlanInvalid
from dagwright.server import Connection, open_connection
from dagwright.steering import Steering
from dagwright.told_tools import tell_cards
from dagwright.toolset import load_toolset

_LISTED = 20
_AT_ONCE = 8
"""Runs that are answered at the same time."""


def feedback(request: AnswerRequest, output: Output) -> int:
    """Answers what a run asks and says what became of the answer.

    Returns:
        0 if the answer counts; 2 if it was refused, or the run has ended.

    Raises:
        CommandRefused: the options give no answer, or it is not clear to what.
    """
    if request.nodes is None:
        return _feedback(request, [], output)
    try:
        return _feedback(request, nodes_in(request.nodes), output)
    except PlanInvalid as invalid:
        return tell_invalid(request.nodes, invalid, output)


def _feedback(request: AnswerRequest, nodes: Sequence[Any], output: Output) -> int:
    # What is wrong with the options is told before a server is looked for.
    content = answer_of(request)
    settings = command_settings()
    asked: list[OpenRequest] = []
    places: list[Place] = []
    names: list[str] = []

    async def look(_: Farewell) -> int:
        async with open_connection(settings) as connection:
            asked.extend(await People(connection).requests_of(request.workflow_id))
        return ExitCode.COMPLETED

    async def send(_: Farewell) -> int:
        async with open_connection(settings) as connection:
            answer = Answer(content, _name(request), request.note)
            more = partial(_nodes_for, connection, request.workflow_id, nodes)
            ends = await _send(People(connection), places, name=names[0], request=request, answer=answer, more=more)
        return _tell(ends, request, output)

    if content is None or request.request is None or request.is_for_all:
        if (code := run_async(look, output)) != ExitCode.COMPLETED:
            return code
        meant = _meant(request, asked)
        if nodes and len(meant) > 1:
            names_of_all = listed([one.document for one in meant], most=_LISTED)
            raise CommandRefused(f"nodes are added once; answer one of {names_of_all} with --nodes")
        places += by_run(meant)
        names.append(meant[0].id if len(meant) == 1 else meant[0].full_node)
        # Outside of the event loop, whose Ctrl-C would wait for the end of the form.
        content = content or _from_form(meant, output)
    else:
        names.append(request.request)
    return run_async(send, output)


def _with_path(told: str, place: Place | None, name: str) -> str:
    """Returns what a run says of a request, which it calls by the last part of its name, with the whole name."""
    return told if place is None else told.replace(repr(place.request), repr(name), 1)


More = Callable[[Place], Awaitable[Mapping[str, Any]]]
"""Returns what an answer holds beside its text, for the run that asks: nodes for its plan."""


async def _nodes_for(connection: Connection, workflow_id: str, nodes: Sequence[Any], place: Place) -> Mapping[str, Any]:
    if not nodes:
        return {}
    settings = command_settings()
    references = await open_runs(connection, settings).tools_of(workflow_id)
    toolset = load_toolset(settings, references)
    await tell_cards(toolset.store, toolset.agents)
    tools = toolset.declarations()
    return await Steering(connection).nodes_of_answer(place, nodes, tools=tools)


async def _send(
    people: People, places: Sequence[Place], *, name: str, request: AnswerRequest, answer: Answer, more: More
) -> list[tuple[bool, str]]:
    """Gives the answer to each place, or to the request as it was named if nobody has looked for places.

    Args:
        name: what a person calls all that is answered.
        more: what the answer holds beside its text.

    Returns:
        For each whether it counts, and what the run says.
    """
    turns = asyncio.Semaphore(_AT_ONCE)

    async def send(place: Place | None) -> tuple[bool, str]:
        async with turns:
            there = place
            try:
                there = there or await people.place_of(request.workflow_id, str(request.request))
                given = replace(answer, content={**answer.content, **await more(there)})
                return True, _with_path(await people.answer(there, given), there, name)
            except ItemNotNamed as error:
                return False, f"{error}; `--all` answers all of them"
            except (AnswerRefused, RunClosed) as error:
                return False, _with_path(str(error), there, name)

    given: Sequence[Place | None] = places or [None]
    return list(await asyncio.gather(*map(send, given)))


def _tell(ends: Sequence[tuple[bool, str]], request: AnswerRequest, output: Output) -> ExitCode:
    refused = [*dict.fromkeys(told for is_taken, told in ends if not is_taken)]
    told = "; ".join([*dict.fromkeys(told for is_taken, told in ends if is_taken), *refused])
    if len(ends) > 1:
        taken = sum(is_taken for is_taken, _ in ends)
        told = f"answered in {taken:,} of {len(ends):,} sub-plans: {told}"
    if output.is_json:
        output.document(acted(request.workflow_id, told, ok=not refused))
    elif not refused:
        output.say(told)
    if refused:
        output.tell(told)
    return ExitCode.REFUSED if refused else ExitCode.COMPLETED


def _meant(request: AnswerRequest, asked: Sequence[OpenRequest]) -> Sequence[OpenRequest]:
    """Returns the open requests that the answer is for: one, or all of one node.

    Raises:
        CommandRefused: none is named, and not exactly one is open; or what is named is not open.
    """
    run = f"the run {request.workflow_id!r}"
    if request.request is not None:
        named = [one for one in asked if one.id == request.request]
        of_all = of_node(asked, named[0].full_node if named else request.request)
        meant = of_all if request.is_for_all or not named else named
        if not meant:
            raise CommandRefused(
                f"{run} does not ask {request.request!r} now; to answer before it asks, give --approve, --reject, "
                "--select, --text or --data, and not --all",
                status="not_found",
            )
        return meant
    if not asked:
        raise CommandRefused(f"{run} asks nothing of anyone now", status="not_found")
    if request.is_for_all and len({one.full_node for one in asked}) == 1:
        return asked
    if len(asked) > 1:
        names = listed([one.document for one in asked], most=_LISTED)
        raise CommandRefused(f"{run} asks {len(asked):,} things; say which: {names}")
    return asked


def _from_form(meant: Sequence[OpenRequest], output: Output) -> dict[str, Any]:
    """Returns what the person at the terminal answers.

    Raises:
        CommandRefused: there is nobody.
    """
    first = meant[0].document
    if not output.can_ask:
        fields = "; ".join(field_lines(first))
        told = f"; its fields: {fields}" if fields else ""
        raise CommandRefused(f"{asking_line(first)} (give {options_for(first['type'])}{told})")
    if len(meant) > 1:
        output.say(f"one answer for {listed([one.document for one in meant], most=_LISTED)}")
    return ask_answer(first)


def _name(request: AnswerRequest) -> str | None:
    return request.by if request.by is not None else account_name()
