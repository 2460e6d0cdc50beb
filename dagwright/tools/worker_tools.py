"""`@worker_tool`: a typed function as a worker tool, whose output slots can be the input of other worker tools.

A worker tool receives slots and parameters as keyword arguments, and returns all of its output slots in a dict. To
report a partial result, a failure, or a message to the planner, it returns a `WorkerResult`. An exception fails the
sub-goal; transient errors, such as `RetryLater`, are retried first.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pydantic import ValidationError

from dagwright.core.model.times import Duration
from dagwright.core.model.tools import SUB_GOAL, Effects, GoalType, ToolDeclaration, WorkerCard
from dagwright.core.model.worker_results import WorkerResult, sub_goal_id_of
from dagwright.tools.context import context
from dagwright.tools.docstrings import parse_docstring
from dagwright.tools.errors import InvalidResult
from dagwright.tools.parameters import Parameters, hints_of, keyword_parameters
from dagwright.tools.spec import ToolSpec, mark_as_tool, validate_aliases, validate_declaration, version_of

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class SubGoal:
    """The sub-goal that a worker tool is called for.

    Args:
        id: its number; in a plan without sub-goals, the ID of the node.
        worker: name of the worker tool.
        description: the planner's description of the sub-goal; may be empty.
        outputs: the output slots of the worker tool.
        inputs: argument -> `{"from_sub_goal", "slot"}`, or a list of such objects.
        params: the arguments that are not in `inputs`, with their values.
    """

    id: int | str
    worker: str
    description: str
    outputs: tuple[str, ...]
    goal_type: GoalType
    inputs: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)


def worker_tool(  # noqa: PLR0913 - each is one field of the declaration, by keyword
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
    uses_models: bool = False,
    aliases: Sequence[str] = (),
) -> Callable[[Function], Function]:
    """Declare a typed function as a worker tool. The function itself is unchanged and can still be called.

    The first paragraphs of its docstring describe the tool to planners, and `Args` describes its parameters.

    Args:
        outputs: names of its output slots; each slot belongs to exactly one worker tool.
        goal_type: `deliverable` if the slots are for the answer, `support` if they are only for other worker tools.
        preconditions: conditions under which a planner may choose the tool, one sentence each.
        requires: the parameters that are required slots: the tool is not called without them.
        same_as: output slot -> required slot of other worker tools that the output slot can also fill.
        name: the activity type; the function's name by default.
        effects: as for `@tool`, but `read` by default, because most worker tools look up or compute and change nothing.
        timeout, max_parallel, max_attempts, uses_models, aliases: as for `@tool`.

    Raises:
        TypeError: a parameter cannot be filled from JSON, or a required slot is not a parameter.
        ValueError: the name, the description, a slot, the effects, a limit or an alias is invalid.
    """

    def decorate(tool_function: Function) -> Function:
        tool_name = name or str(getattr(tool_function, "__name__", ""))
        if not inspect.isfunction(tool_function):
            raise TypeError(f"@worker_tool takes a function, not {type(tool_function).__name__}")
        documentation = parse_docstring(tool_function)
        if not documentation.summary:
            raise ValueError(
                f"Worker tool {tool_name!r}: its docstring has no description, which planners need to choose it"
            )
        try:
            parameters = keyword_parameters(tool_function, documentation)
            takes_sub_goal = _takes_sub_goal(hints_of(tool_function))
            schema = _caller_schema(parameters, requires)
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
            raise ValueError(f"Worker tool {tool_name!r}: {_first_problem(error)}") from None
        except TypeError as error:
            raise TypeError(f"Worker tool {tool_name!r}: {error}") from error
        declaration = ToolDeclaration(
            name=tool_name,
            input_schema=schema,
            max_parallel=max_parallel,
            max_attempts=max_attempts,
            version=version_of(tool_function),
            uses_models=uses_models,
            description=card.description,
            worker=card,
        )
        declaration = validate_declaration(declaration, effects, timeout=timeout)
        former_names = validate_aliases(tool_name, aliases)
        wrapper = _wrap(tool_function, declaration)
        return mark_as_tool(tool_function, ToolSpec(declaration, wrapper, parameters, former_names))

    return decorate


def _takes_sub_goal(hints: Mapping[str, Any]) -> bool:
    if SUB_GOAL in hints and hints[SUB_GOAL] is not SubGoal:
        raise TypeError(f"parameter {SUB_GOAL!r} receives the sub-goal; write `{SUB_GOAL}: SubGoal`")
    return SUB_GOAL in hints


def _caller_schema(parameters: Parameters, requires: Sequence[str]) -> dict[str, Any]:
    """Return the schema for callers: without the sub-goal and the required slots, which the run fills in."""
    schema = dict(parameters.schema)
    properties = {name: part for name, part in schema["properties"].items() if name != SUB_GOAL}
    for slot in requires:
        if slot not in properties:
            raise TypeError(f"it requires {slot!r}, which is not a parameter")
    schema["properties"] = properties
    required_names = [name for name in schema.pop("required", ()) if name != SUB_GOAL and name not in requires]
    definitions = {name: part for name, part in schema.pop("$defs", {}).items() if name != SubGoal.__name__}
    return {
        **schema,
        **({"required": required_names} if required_names else {}),
        **({"$defs": definitions} if definitions else {}),
    }


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    location = "/".join(map(str, problem["loc"]))
    message = problem["msg"].removeprefix("Value error, ")
    return f"{location}: {message}" if location else message


def _wrap(function: Callable[..., Any], declaration: ToolDeclaration) -> Callable[..., Any]:
    """Wrap the function for the run: the wrapper returns a complete WorkerResult."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(**arguments: Any) -> dict[str, Any]:
            return to_worker_result(await function(**_with_params(arguments)), declaration).to_json()

        return call_async

    @functools.wraps(function)
    def call(**arguments: Any) -> dict[str, Any]:
        return to_worker_result(function(**_with_params(arguments)), declaration).to_json()

    return call


def _with_params(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fill in `params` of the sub-goal: the call contains these values only as arguments."""
    sub_goal = arguments.get(SUB_GOAL)
    if not isinstance(sub_goal, SubGoal):
        return arguments
    params = {name: arguments[name] for name in arguments if name != SUB_GOAL and name not in sub_goal.inputs}
    return {**arguments, SUB_GOAL: replace(sub_goal, params=params)}


def to_worker_result(returned_value: Any, declaration: ToolDeclaration) -> WorkerResult:
    """Convert the return value of a worker tool to a WorkerResult; a partial result gets null for missing slots.

    Raises:
        InvalidResult: the value is not a result of this worker tool; the message lists missing and unexpected slots.
    """
    card = declaration.worker
    assert card is not None
    sub_goal_id = sub_goal_id_of(context().node_id)
    result = returned_value if isinstance(returned_value, WorkerResult) else WorkerResult(outputs=returned_value)
    subject = f"The worker tool {declaration.name!r}"
    if not isinstance(result.outputs, Mapping):
        raise InvalidResult(
            f"{subject} must return a dict of its slots or a WorkerResult, not {type(returned_value).__name__}"
        )
    if result.status == "failed":
        return replace(result, sub_goal_id=sub_goal_id, outputs={})
    problem = card.slots_problem(result.outputs, is_partial=result.status == "partial")
    if problem is not None:
        raise InvalidResult(f"{subject} must return exactly the slots {', '.join(card.outputs)}: {problem}")
    return replace(result, sub_goal_id=sub_goal_id, outputs={slot: result.outputs.get(slot) for slot in card.outputs})
