"""`@worker_tool`: a typed function as a worker, whose slots fill one another.

A worker takes slots and parameters as keyword arguments, and returns its own slots, all of them, in a dict; or a
`WorkerResult`, where it has more to say: that it has found a part only, that it failed, or what a planner should know.
What it raises fails the sub-goal; what may pass, such as `RetryLater`, is tried again before.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pydantic import ValidationError

from dagwright.core.model.times import Duration
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.model.worker_cards import SUB_GOAL, GoalType, WorkerCard
from dagwright.core.model.worker_results import WorkerResult, sub_goal_id_of
from dagwright.tools.context import context
from dagwright.tools.docstrings import documentation_of
from dagwright.tools.errors import InvalidResult
from dagwright.tools.parameters import Parameters, hints_of, keywords_of
from dagwright.tools.spec import ToolSpec, checked_aliases, checked_declaration, marked, version_of

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class SubGoal:
    """The sub-goal for which a worker is called.

    Args:
        id: its number; in a plan without sub-goals the id of the node.
        worker: name of the worker.
        description: what whoever planned it wants of it; empty if nothing was said.
        outputs: the slots of the worker.
        inputs: argument -> `{"from_sub_goal", "slot"}` of the slot that it gets, or a list of such.
        params: the other arguments, with their values.
    """

    id: int | str
    worker: str
    description: str
    outputs: tuple[str, ...]
    goal_type: GoalType
    inputs: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)


def worker_tool(  # noqa: PLR0913 - each is one word of the declaration, by keyword
    *,
    outputs: Sequence[str],
    goal_type: GoalType,
    preconditions: Sequence[str] = (),
    requires: Sequence[str] = (),
    same_as: Mapping[str, str] | None = None,
    name: str | None = None,
    effects: Effects | str = Effects.READ,
    timeout: Duration | None = None,
    max_parallel: int | None = None,
    max_attempts: int | None = None,
    asks_models: bool = False,
    aliases: Sequence[str] = (),
) -> Callable[[Function], Function]:
    """Makes a worker of a typed function; the function itself stays as it is and can be called as before.

    The first paragraphs of its docstring tell planners what it does, and `Args` what its parameters are.

    Args:
        outputs: names of the slots that it puts out, exactly these; no other worker may put out one of them.
        goal_type: `deliverable` if they are for the answer, `support` if they are for other workers only.
        preconditions: when a planner may choose it, a sentence each.
        requires: those of its parameters that are slots which have to be there: it is not called without them.
        same_as: slot of its own -> the slot of another worker that it may stand for, where that is required.
        name: the activity type; the function's name if left out.
        effects: as for `@tool`, but `read` if left out: a worker looks and reckons, and changes nothing.
        timeout, max_parallel, max_attempts, asks_models, aliases: as for `@tool`.

    Raises:
        TypeError: a parameter cannot be filled from JSON, or a required slot is none of them.
        ValueError: the name, the description, a slot, the effects, a limit or an alias is invalid.
    """

    def decorate(decorated: Function) -> Function:
        shown = name or str(getattr(decorated, "__name__", ""))
        if not inspect.isfunction(decorated):
            raise TypeError(f"@worker_tool takes a function, not {type(decorated).__name__}")
        documentation = documentation_of(decorated)
        if not documentation.summary:
            raise ValueError(
                f"Worker {shown!r}: its docstring does not say what it does, so no planner could choose it"
            )
        try:
            parameters = keywords_of(decorated, documentation)
            takes_sub_goal = _takes_sub_goal(hints_of(decorated))
            schema = _told_schema(parameters, requires)
            card = WorkerCard(
                description=documentation.summary,
                preconditions=tuple(preconditions),
                requires=tuple(requires),
                outputs=tuple(outputs),
                same_as=dict(same_as or {}),
                goal_type=goal_type,
                takes_sub_goal=takes_sub_goal,
            )
        except ValidationError as error:
            raise ValueError(f"Worker {shown!r}: {_first_of(error)}") from None
        except TypeError as error:
            raise TypeError(f"Worker {shown!r}: {error}") from error
        declaration = ToolDeclaration(
            name=shown,
            input_schema=schema,
            max_parallel=max_parallel,
            max_attempts=max_attempts,
            version=version_of(decorated),
            asks_models=asks_models,
            description=card.description,
            worker=card,
        )
        declaration = checked_declaration(declaration, effects, timeout=timeout)
        former = checked_aliases(shown, aliases)
        return marked(decorated, ToolSpec(declaration, _answering(decorated, declaration), parameters, former))

    return decorate


def _takes_sub_goal(hints: Mapping[str, Any]) -> bool:
    if SUB_GOAL in hints and hints[SUB_GOAL] is not SubGoal:
        raise TypeError(f"parameter {SUB_GOAL!r} is filled with the sub-goal; write `{SUB_GOAL}: SubGoal`")
    return SUB_GOAL in hints


def _told_schema(parameters: Parameters, requires: Sequence[str]) -> dict[str, Any]:
    """Returns the schema of what others give: without the sub-goal, and without what the run itself looks after."""
    schema = dict(parameters.schema)
    properties = {name: part for name, part in schema["properties"].items() if name != SUB_GOAL}
    for slot in requires:
        if slot not in properties:
            raise TypeError(f"it requires {slot!r}, which is none of its parameters")
    schema["properties"] = properties
    required = [name for name in schema.pop("required", ()) if name != SUB_GOAL and name not in requires]
    definitions = {name: part for name, part in schema.pop("$defs", {}).items() if name != SubGoal.__name__}
    return {
        **schema,
        **({"required": required} if required else {}),
        **({"$defs": definitions} if definitions else {}),
    }


def _first_of(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = "/".join(map(str, first["loc"]))
    said = first["msg"].removeprefix("Value error, ")
    return f"{place}: {said}" if place else said


def _answering(function: Callable[..., Any], declaration: ToolDeclaration) -> Callable[..., Any]:
    """Returns the function as the run calls it: what it answers is a whole WorkerResult."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def answer_later(**arguments: Any) -> dict[str, Any]:
            return checked_result(await function(**_with_params(arguments)), declaration).to_json()

        return answer_later

    @functools.wraps(function)
    def answer(**arguments: Any) -> dict[str, Any]:
        return checked_result(function(**_with_params(arguments)), declaration).to_json()

    return answer


def _with_params(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the arguments with a sub-goal that tells those which are written out: they do not travel twice."""
    sub_goal = arguments.get(SUB_GOAL)
    if not isinstance(sub_goal, SubGoal):
        return arguments
    params = {name: arguments[name] for name in arguments if name != SUB_GOAL and name not in sub_goal.inputs}
    return {**arguments, SUB_GOAL: replace(sub_goal, params=params)}


def checked_result(answered: Any, declaration: ToolDeclaration) -> WorkerResult:
    """Returns what a worker answered as a WorkerResult with its sub-goal, and all slots of a partial one.

    Raises:
        InvalidResult: it is no answer of this worker; the message says which slots are missing or too many.
    """
    card = declaration.worker
    assert card is not None
    number = sub_goal_id_of(context().node)
    result = answered if isinstance(answered, WorkerResult) else WorkerResult(outputs=answered)
    what = f"The worker {declaration.name!r}"
    if not isinstance(result.outputs, Mapping):
        raise InvalidResult(f"{what} must return a dict of its slots or a WorkerResult, not {type(answered).__name__}")
    if result.status == "failed":
        return replace(result, sub_goal_id=number, outputs={})
    problem = card.slots_problem(result.outputs, is_partial=result.status == "partial")
    if problem is not None:
        raise InvalidResult(f"{what} did not put out exactly {', '.join(card.outputs)}: {problem}")
    return replace(result, sub_goal_id=number, outputs={slot: result.outputs.get(slot) for slot in card.outputs})
