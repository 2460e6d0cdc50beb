"""`fork`: a new run from another one, with a changed plan, input or tool, that does only what the change reaches."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dagwright.cli.async_runs import Farewell, run_async
from dagwright.cli.background_settings import refuse_other_settings
from dagwright.cli.connecting import command_settings
from dagwright.cli.exits import CommandRefused, ExitCode
from dagwright.cli.output import Output, one_line
from dagwright.cli.plans import PlanSource, read_pairs, read_plan, refusal, refusal_lines, typed_inputs
from dagwright.cli.requests import ForkRequest
from dagwright.client import Origin, Runs, Started, Terms, open_runs
from dagwright.feed import RunView
from dagwright.forks import Draft, ForkRefused, Forks, retooled
from dagwright.plan.compiled import CompiledPlan
from dagwright.plan.errors import PlanInvalid, Problem, pointer
from dagwright.plan.inputs import wrong_inputs
from dagwright.preparation import check_plan, prepare_plan, unused_inputs
from dagwright.server import open_connection
from dagwright.store import open_store
from dagwright.toolset import Toolset, load_toolset

_NODES_SHOWN = 20


def fork(request: ForkRequest, output: Output) -> int:
    """Shows what a fork would do, and starts it if that is wanted; it returns at once.

    Returns:
        2 if nothing was started.

    Raises:
        CommandRefused: the run cannot be forked so, nobody said yes, or what is in the background has other settings.
    """
    settings = command_settings()

    async def work(_: Farewell) -> int:
        async with open_connection(settings) as connection:
            runs = open_runs(connection, settings)
            tools = await runs.tools_of(request.workflow_id)
            forks = Forks(runs.feed, open_store(settings.payload_store))
            try:
                draft = await _draft(request, runs, forks, toolset=load_toolset(settings, tools))
                if not _is_wanted(draft, request, output):
                    return ExitCode.REFUSED
                refuse_other_settings(settings)
                started = await _start(draft, runs, forks, tools=tools)
            except PlanInvalid as invalid:
                _refuse(request, invalid, output)
                return ExitCode.REFUSED
            except ForkRefused as refused:
                raise CommandRefused(str(refused), status="refused") from None
        _tell(draft, started, output)
        return ExitCode.COMPLETED

    return run_async(work, output)


async def _draft(request: ForkRequest, runs: Runs, forks: Forks, *, toolset: Toolset) -> Draft:
    view = await runs.feed(request.workflow_id).read()
    if view.scheduler is None:
        raise ForkRefused(f"nothing is known of the plan of {request.workflow_id!r}; start it anew with `run`")
    texts = read_pairs(request.inputs, option="--input")
    known = dict(view.scheduler.inputs)
    plan, inputs = _changed(request, view, toolset, texts=texts, known=known)
    return await forks.draft(view, plan, inputs=inputs, rerun=request.rerun)


def _changed(
    request: ForkRequest, view: RunView, toolset: Toolset, *, texts: Mapping[str, str], known: Mapping[str, Any]
) -> tuple[CompiledPlan, dict[str, Any]]:
    """Returns the plan and the inputs of the fork.

    Raises:
        PlanInvalid: they are wrong.
    """
    assert view.scheduler is not None
    if request.plan is None:
        plan = retooled(view.scheduler.plan, toolset.declarations(), rerun=request.rerun)
        typed, problems = typed_inputs(plan.inputs, texts)
        problems += [
            Problem("invalid_field", f"the plan has no input {name!r}", pointer("inputs", name))
            for name in texts
            if name not in plan.inputs and name not in known
        ]
        inputs = {**known, **typed}
        if problems := [*problems, *wrong_inputs(plan.inputs, inputs)]:
            raise PlanInvalid(problems)
        return plan, inputs
    context = view.run_input.context if view.run_input is not None else {}
    checked = check_plan(read_plan(request.plan), toolset.declarations(), context=context)
    typed, problems = typed_inputs(checked.inputs, texts)
    if problems := [*unused_inputs(checked, texts), *problems]:
        raise PlanInvalid(problems)
    unused = {str(problem.pointer).rpartition("/")[2] for problem in unused_inputs(checked, known)}
    inputs = {**{name: value for name, value in known.items() if name not in unused}, **typed}
    return prepare_plan(checked, inputs), inputs


def _is_wanted(draft: Draft, request: ForkRequest, output: Output) -> bool:
    """Shows what a fork would do, and tells whether it is wanted.

    Raises:
        CommandRefused: there is nobody to say yes.
    """
    for line in _difference_lines(draft):
        output.say(one_line(line, limit=1_000))
    if request.is_yes:
        return True
    if output.can_ask:
        return input("Start it? [y/N] ").strip().lower() in ("y", "yes")
    if output.is_json:
        message = "nothing was started; --yes starts it"
        document = {"workflow_id": draft.origin, "ok": False, "message": message, "difference": draft.to_json()}
        output.document(document)
        output.tell(message)
        return False
    raise CommandRefused("nothing was started yet: add --yes to start it", status="not_confirmed")


def _difference_lines(draft: Draft) -> Iterator[str]:
    seen = draft.outlook
    yield f"{draft.origin} -> {draft.workflow_id}"
    if seen.reused:
        yield f"reused: {_names(seen.reused, most=_NODES_SHOWN)}"
    for task_id, why in [*seen.runs.items()][:_NODES_SHOWN]:
        effects = draft.effects.get(task_id)
        yield f"runs: {task_id}{f' ({effects})' if effects else ''}: it {why}"
    if (left := len(seen.runs) - _NODES_SHOWN) > 0:
        yield f"runs: and {left:,} more"
    if seen.undecided:
        yield f"reused if what they read comes out as before: {_names(seen.undecided, most=_NODES_SHOWN)}"
    if seen.later:
        yield f"later: {_names(seen.later, most=_NODES_SHOWN)}"


def _names(names: Sequence[str], *, most: int) -> str:
    """Returns names: `a, b and 3 more`."""
    shown = ", ".join(one_line(name, limit=80) for name in names[:most])
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown


async def _start(draft: Draft, runs: Runs, forks: Forks, *, tools: list[str]) -> Started:
    return await runs.start(
        draft.plan,
        draft.inputs,
        workflow_id=draft.workflow_id,
        origin=Origin(dict(draft.content), f"fork of {draft.origin}"),
        tools=tools,
        terms=await _terms(draft, forks),
    )


async def _terms(draft: Draft, forks: Forks) -> Terms:
    beside = await forks.ready(draft)
    return Terms(
        deadline_s=beside.deadline_s,
        policy=beside.policy,
        needs_approval=beside.needs_approval,
        approved_by=beside.approved_by,
        beside=beside,
    )


def _tell(draft: Draft, started: Started, output: Output) -> None:
    how = "was forked" if started.is_new else "was forked so already; that run is there"
    message = f"{how} as {started.workflow_id}; `dagwright watch {started.workflow_id}` serves and follows it"
    if output.is_json:
        document = {"workflow_id": draft.origin, "ok": True, "message": message, "fork": started.workflow_id}
        output.document({**document, "difference": draft.to_json()})
    else:
        output.say(f"{draft.origin} {message}")


def _refuse(request: ForkRequest, invalid: PlanInvalid, output: Output) -> None:
    source = PlanSource(request.plan or request.workflow_id, None, invalid)
    if output.is_json:
        output.document(refusal(source, invalid))
    for line in refusal_lines(source, invalid):
        output.tell(line)
