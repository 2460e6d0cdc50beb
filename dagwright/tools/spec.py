"""Declare tools: Python functions with `@tool`, and activities and workflows of other workers by name."""

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from types import CodeType
from typing import Any, Literal, TypeVar, overload

from dagwright.core.boundary import wire
from dagwright.core.boundary.arguments import checks_arguments
from dagwright.core.model.argument_checks import SchemaOfTool
from dagwright.core.model.call_limits import CallLimit, CallLimitInvalid, parse_limit
from dagwright.core.model.compiled import DEFAULT_TIMEOUT_S
from dagwright.core.model.resolvers import Resolver
from dagwright.core.model.times import MAX_DURATION, Duration, parse_duration
from dagwright.core.model.tools import Effects, ToolDeclaration, WorkerCard, problem_of_effects_rule
from dagwright.tools.docstrings import parse_docstring
from dagwright.tools.parameters import Parameters, output_schema_of, parameters_of

NAME_LIMIT_BYTES = 200
"""Maximum size of a tool name or node ID. In Temporal, a run with an activity type of over 1,000 bytes gets stuck."""

_MAX_CACHED_VERSIONS = 512
"""Maximum number of cached versions. A process has about 100 tools, and creates some of them repeatedly."""
_SPEC_ATTRIBUTE = "__dagwright_tool__"

EffectsName = Literal["pure", "read", "idempotent", "write"]
"""Value of an `Effects`."""
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool: its declaration for plans, and its implementation.

    Args:
        declaration: the part that plans are checked against.
        function: the Python function; `None` if another worker serves the tool.
        parameters: how the function receives its arguments; `None` if another worker serves the tool.
        aliases: former names, which runs in flight still call.
        limit: limit of the calls across all runs, if the tool declares one.
    """

    declaration: ToolDeclaration
    function: Callable[..., Any] | None = None
    parameters: Parameters | None = None
    aliases: tuple[str, ...] = ()
    limit: CallLimit | None = None

    @property
    def name(self) -> str:
        """Name of the tool in plans; for an activity, also the activity type."""
        return self.declaration.name

    @property
    def version(self) -> str:
        """Short hash of the function's source; empty for a tool of another worker."""
        return self.declaration.version

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        return inspect.iscoroutinefunction(self.function)

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments of the function for a JSON object.

        Raises:
            InvalidArguments: the arguments do not match the parameters.
        """
        if self.parameters is None:
            raise TypeError(f"{self.name!r} is served by another worker and cannot be called here")
        return self.parameters.bind(arguments)

    def with_queue(self, task_queue: str) -> "ToolSpec":
        """Return the same tool, served on `task_queue`; a tool of another worker keeps its queue."""
        if self.function is None:
            return self
        return replace(self, declaration=replace(self.declaration, task_queue=task_queue))


@overload
def tool(function: Function, /) -> Function: ...
@overload
def tool(
    *,
    name: str | None = None,
    effects: Effects | EffectsName = Effects.WRITE,
    timeout: Duration | None = None,
    max_parallel: int | None = None,
    max_attempts: int | None = None,
    schema: Mapping[str, Any] | None = None,
    batch: bool = False,
    limit: str | None = None,
    uses_models: bool = False,
    effects_by: Mapping[str, Any] | None = None,
    secrets: Sequence[str] | None = None,
    sends_to_hosts: bool = False,
    undo: str | None = None,
    sets: str | None = None,
    returns: str | None = None,
    resolver: Resolver | None = None,
    aliases: Sequence[str] = (),
) -> Callable[[Function], Function]: ...
@checks_arguments
def tool(  # noqa: PLR0913 - each is one field of the declaration, by keyword
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    effects: Effects | EffectsName = Effects.WRITE,
    timeout: Duration | None = None,
    max_parallel: int | None = None,
    max_attempts: int | None = None,
    schema: Mapping[str, Any] | None = None,
    batch: bool = False,
    limit: str | None = None,
    uses_models: bool = False,
    effects_by: Mapping[str, Any] | None = None,
    secrets: Sequence[str] | None = None,
    sends_to_hosts: bool = False,
    undo: str | None = None,
    sets: str | None = None,
    returns: str | None = None,
    resolver: Resolver | None = None,
    aliases: Sequence[str] = (),
) -> Function | Callable[[Function], Function]:
    """Declare a typed function as a tool. The function itself is unchanged and can still be called.

    Args:
        name: the activity type; the function's name by default.
        effects: side effects of a call; `write` by default.
        timeout: timeout of one attempt: a timedelta, seconds, or text like `30s`; 60 seconds by default, and
            1 second for a pure tool inside a region.
        max_parallel: maximum number of concurrent calls of the tool in one run.
        max_attempts: attempts including the first; the default depends on the effects.
        schema: additional JSON Schema of the arguments object, such as `oneOf` for parameters of which exactly one
            is required.
        batch: whether short calls may share an activity; for tools with the effects `read` or `idempotent`.
        limit: limit of the calls across all runs, such as `20/s concurrency=5`; a pure tool cannot have a limit.
        uses_models: whether calls use a model; a run with a budget starts such calls only while budget is left.
        effects_by: how an argument determines the effects of a call, such as
            `{"argument": "method", "default": "GET", "effects": {"GET": "read"}}`; for other values, `effects` applies.
        secrets: names of the secrets that plans may give to the tool; an empty list rejects all; by default, the
            settings of the worker decide.
        sends_to_hosts: whether the settings of the worker bind each secret to the hosts that may get it, as for
            `http_request`.
        undo: name of the tool that compensates a call in a run with compensation. The tool gets the `key`, `arguments`
            and `result` of the call; the result is null if the outcome of the call is unknown.
        sets: context name, without `@`, that each call sets to the entity in its result.
        returns: type of the ID in a result: an entity type such as `fund`, or another type, such as `role`; a plan that
            passes the ID to a parameter of another type is rejected before it runs.
        resolver: the resolver that has the tool's name in its field `find`; only for a tool that finds the entities of
            lookups.
        aliases: former names of the tool, so that runs in flight find it after a rename; new plans use the new name.

    Raises:
        TypeError: a parameter cannot be filled from JSON.
        ValueError: the name, the effects, the timeout, a count or the schema is invalid.
    """

    def decorate(tool_function: Function) -> Function:
        tool_name = name or str(getattr(tool_function, "__name__", ""))
        if not inspect.isfunction(tool_function):
            article = "an" if (kind := type(tool_function).__name__)[0] in "aeiou" else "a"
            raise TypeError(f"@tool takes a function, not {article} {kind}: write a function that calls it")
        if inspect.isgeneratorfunction(tool_function) or inspect.isasyncgenfunction(tool_function):
            raise TypeError(f"Tool {tool_name!r}: a generator has no result; return a list instead")
        documentation = parse_docstring(tool_function)
        try:
            parameters, output_schema = parameters_of(tool_function, documentation), output_schema_of(tool_function)
        except TypeError as error:
            raise TypeError(f"Tool {tool_name!r}: {error}") from error
        if schema is not None:
            parameters = replace(parameters, schema=_validate_schema(tool_name, {**parameters.schema, **schema}))
        declaration = validate_declaration(
            ToolDeclaration(
                name=tool_name,
                input_schema=parameters.schema,
                max_parallel=max_parallel,
                max_attempts=max_attempts,
                version=version_of(tool_function),
                batch=batch,
                uses_models=uses_models,
                effects_by=None if effects_by is None else dict(effects_by),
                secrets=None if secrets is None else tuple(secrets),
                sends_to_hosts=sends_to_hosts,
                undo=undo,
                sets=sets,
                returns=returns,
                resolver=None if resolver is None else resolver.to_json(),
                description=documentation.summary,
                output_schema=output_schema,
                plain_parameters=parameters.plain_parameters,
            ),
            effects,
            timeout=timeout,
        )
        former_names = validate_aliases(tool_name, aliases)
        spec = ToolSpec(declaration, tool_function, parameters, former_names, _parse_call_limit(declaration, limit))
        return mark_as_tool(tool_function, spec)

    return decorate if function is None else decorate(function)


def _parse_call_limit(declaration: ToolDeclaration, limit: str | None) -> CallLimit | None:
    if limit is None:
        return None
    if declaration.effects is Effects.PURE:
        raise ValueError(f"Tool {declaration.name!r}: a pure tool calls no service, so it has no limit")
    try:
        return parse_limit(limit)
    except CallLimitInvalid as error:
        raise ValueError(f"Tool {declaration.name!r}: {error}") from None


@checks_arguments
def declare_activity(  # noqa: PLR0913 - each is one field of the declaration, by keyword
    name: str,
    task_queue: str,
    *,
    effects: Effects | EffectsName = Effects.WRITE,
    input_schema: Mapping[str, Any] | None = None,
    timeout: Duration | None = None,
    max_parallel: int | None = None,
    max_attempts: int | None = None,
    undo: str | None = None,
    sets: str | None = None,
    returns: str | None = None,
    description: str = "",
    worker: WorkerCard | None = None,
) -> ToolSpec:
    """Declare an activity that another worker serves, in any language, so that plans can call it by name.

    Args:
        name: the activity type, exactly as the worker registers it.
        task_queue: the queue that the worker polls.
        effects: as for `@tool`.
        input_schema: JSON Schema (2020-12) of the activity's single JSON object; `None` accepts any.
        timeout: timeout of one attempt, as for `@tool`.
        undo: as for `@tool`.
        sets: as for `@tool`.
        returns: as for `@tool`.
        worker: the worker card, if the activity is a worker tool and returns a WorkerResult.

    Raises:
        ValueError: a value is invalid; the message names it.
    """
    declaration = ToolDeclaration(
        name=name,
        input_schema=_validate_optional_schema(name, input_schema),
        task_queue=_validate_queue(name, task_queue),
        max_parallel=max_parallel,
        max_attempts=max_attempts,
        is_foreign=True,
        undo=undo,
        sets=sets,
        returns=returns,
        description=description or (worker.description if worker is not None else ""),
        worker=worker,
    )
    return ToolSpec(validate_declaration(declaration, effects, timeout=timeout))


@checks_arguments
def declare_workflow(  # noqa: PLR0913 - each is one field of the declaration, by keyword
    name: str,
    task_queue: str,
    *,
    workflow: str | None = None,
    effects: Effects | EffectsName = Effects.WRITE,
    input_schema: Mapping[str, Any] | None = None,
    timeout: Duration | None = None,
    max_parallel: int | None = None,
    max_attempts: int | None = None,
    undo: str | None = None,
    sets: str | None = None,
    returns: str | None = None,
    description: str = "",
) -> ToolSpec:
    """Declare a workflow that another worker serves, in any language, so that plans can call it by name.

    Each call starts the workflow as a child of the run, with one JSON object as its argument. The workflow ID follows
    from the run and the node, so it can serve as an idempotency key. Cancelling the node cancels the workflow.

    Args:
        name: name of the workflow in plans.
        task_queue: the queue that the workers of the workflow poll.
        workflow: the workflow type, exactly as its workers register it; by default `name`.
        effects: as for `@tool`. A retry of a node starts the workflow again, unless the effects are `write`.
        input_schema: JSON Schema (2020-12) of the argument; `None` accepts any.
        timeout: limit of one attempt, as for `@tool`; by default there is no limit. If several attempts are
            allowed, the timeout starts again whenever the workflow continues as new.
        undo: as for `@tool`.
        sets: as for `@tool`.
        returns: as for `@tool`.

    Raises:
        ValueError: a value is invalid; the message names it.
    """
    workflow_type = name if workflow is None else workflow
    if not _is_valid_name(workflow_type):
        raise ValueError(
            f"Tool {name!r}: workflow is {workflow_type!r:.60}, expected a type of 1 to {NAME_LIMIT_BYTES} bytes"
        )
    if workflow_type in wire.KNOWN_WORKFLOWS:
        raise ValueError(f"Tool {name!r}: {workflow_type!r} runs plans; use a node with a sub-plan instead")
    declaration = ToolDeclaration(
        name=name,
        input_schema=_validate_optional_schema(name, input_schema),
        task_queue=_validate_queue(name, task_queue),
        max_parallel=max_parallel,
        max_attempts=max_attempts,
        is_foreign=True,
        workflow=workflow_type,
        undo=undo,
        sets=sets,
        returns=returns,
        description=description,
    )
    return ToolSpec(validate_declaration(declaration, effects, timeout=MAX_DURATION if timeout is None else timeout))


def _validate_queue(name: str, task_queue: str) -> str:
    if not task_queue or task_queue.startswith("/_sys/") or len(task_queue.encode(errors="replace")) > 1000:
        raise ValueError(f"Tool {name!r}: {task_queue!r} is not a valid task queue")
    return task_queue


def _validate_optional_schema(name: str, schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return None if schema is None else _validate_schema(name, schema)


def validate_aliases(name: str, aliases: Sequence[str]) -> tuple[str, ...]:
    """Validate the former names of a tool.

    Raises:
        ValueError: an alias is not a valid name, or is the tool's own name.
    """
    names: Sequence[object] = aliases
    if isinstance(names, str) or not all(isinstance(alias, str) and _is_valid_name(alias) for alias in names):
        raise ValueError(f"Tool {name!r}: aliases must be a list of names of 1 to {NAME_LIMIT_BYTES} bytes")
    if name in aliases:
        raise ValueError(f"Tool {name!r}: aliases are its former names, and {name!r} is its name")
    return tuple(dict.fromkeys(aliases))


def _validate_schema(name: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        SchemaOfTool(schema)
    except ValueError as error:
        raise ValueError(f"Tool {name!r}: input_schema: {error}") from error
    return schema


def mark_as_tool(function: Function, spec: ToolSpec) -> Function:
    """Mark a function as a tool, and return it."""
    setattr(function, _SPEC_ATTRIBUTE, spec)
    return function


def spec_of(candidate: object) -> ToolSpec | None:
    """Return the tool of a decorated function or declared activity, `None` for anything else."""
    if isinstance(candidate, ToolSpec):
        return candidate
    # Only functions: an object with arbitrary attributes (a mock, a lazy module) is not a tool.
    spec = vars(candidate).get(_SPEC_ATTRIBUTE) if inspect.isfunction(candidate) else None
    return spec if isinstance(spec, ToolSpec) else None


def validate_declaration(
    declaration: ToolDeclaration, effects: Effects | str, *, timeout: Duration | None
) -> ToolDeclaration:
    """Validate a declaration and set its effects and timeout, as for `@tool`.

    Raises:
        ValueError: a value is invalid; the message names it.
    """
    name = declaration.name
    _validate_name(name)
    if effects not in list(Effects):
        raise ValueError(f"Tool {name!r}: effects is {effects!r}, expected one of {', '.join(Effects)}")
    declaration = replace(declaration, effects=Effects(effects))
    if (problem := next(_option_problems(declaration), None)) is not None:
        raise ValueError(f"Tool {name!r}: {problem}")
    if timeout is not None:
        return replace(declaration, timeout_s=_timeout_s(name, timeout))
    # 0: the default timeout depends on the run that calls the tool.
    has_default_timeout_of_run = declaration.effects is Effects.PURE or declaration.worker is not None
    return replace(declaration, timeout_s=0.0 if has_default_timeout_of_run else DEFAULT_TIMEOUT_S)


def _validate_name(name: str) -> None:
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise ValueError("A tool name contains a lone surrogate (half a character)") from error
    if not 0 < size <= NAME_LIMIT_BYTES:
        raise ValueError(f"Tool {name[:50]!r}: a name has 1 to {NAME_LIMIT_BYTES} bytes, not {size}")


def _option_problems(declaration: ToolDeclaration) -> Iterator[str]:
    """Yield the problems of a declaration: invalid counts and names, and options that contradict its effects."""
    for option, count in (
        ("max_parallel", declaration.max_parallel),
        ("max_attempts", declaration.max_attempts),
    ):
        if count is not None and (type(count) is not int or count < 1):
            yield f"{option} is {count!r}, expected a whole number of at least 1"
    for option, given_name in (
        ("undo", declaration.undo),
        ("sets", declaration.sets),
        ("returns", declaration.returns),
    ):
        if given_name is not None and not _is_valid_name(given_name):
            yield f"{option} is {given_name!r:.60}, expected a name of 1 to {NAME_LIMIT_BYTES} bytes"
    if declaration.effects_by is not None and (problem := problem_of_effects_rule(declaration.effects_by)) is not None:
        yield f"effects_by: {problem}"
    if declaration.batch and (problem := _problem_of_batch(declaration, declaration.effects)) is not None:
        yield f"batch: {problem}"
    if declaration.undo is not None and declaration.effects.changes_nothing:
        yield f"effects {declaration.effects} change nothing, so there is nothing to undo"
    if declaration.sets is not None and declaration.sets.startswith("@"):
        yield f"sets is {declaration.sets!r}, expected the name without '@'"


def _problem_of_batch(declaration: ToolDeclaration, effects: Effects) -> str | None:
    if effects not in (Effects.READ, Effects.IDEMPOTENT):
        reason = "pure calls share activities already" if effects is Effects.PURE else "a write must not run again"
        return f"effects is {effects.value}, expected read or idempotent: {reason}"
    for name, is_set in (
        ("max_parallel", declaration.max_parallel is not None),
        ("uses_models", declaration.uses_models),
        ("effects_by", declaration.effects_by is not None),
    ):
        if is_set:
            return f"calls of a tool with {name} need activities of their own; remove one of the two"
    return None


def _is_valid_name(text: str) -> bool:
    return 0 < len(text.encode(errors="replace")) <= NAME_LIMIT_BYTES


def _timeout_s(name: str, timeout: Duration) -> float:
    try:
        seconds = parse_duration(timeout).total_seconds() if isinstance(timeout, str) else timeout
    except ValueError as error:
        raise ValueError(f"Tool {name!r}: timeout: {error}") from error
    seconds = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
    if not 0 < seconds <= MAX_DURATION.total_seconds():
        raise ValueError(f"Tool {name!r}: timeout is {timeout!r}, expected over 0 and at most {MAX_DURATION.days}d")
    return seconds


@dataclass(frozen=True, slots=True, eq=False)
class _CodeKey:
    """A code object as a cache key, compared by identity: equal code may come from different source."""

    code: CodeType

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _CodeKey) and self.code is other.code

    def __hash__(self) -> int:
        return id(self.code)


def version_of(function: Callable[..., Any]) -> str:
    """Return 12 hex digits that change when the source of a function changes."""
    unwrapped_function = inspect.unwrap(function)
    return (
        _version_of(_CodeKey(unwrapped_function.__code__))
        if inspect.isfunction(unwrapped_function)
        else _hash_of_code(function.__code__)
    )


@functools.lru_cache(maxsize=_MAX_CACHED_VERSIONS)
def _version_of(key: _CodeKey) -> str:
    """Hash the source of a code object, cached: tokenizing the source is the slowest part of a declaration."""
    try:
        return _short_hash(inspect.getsource(key.code).encode())
    except (OSError, TypeError):
        return _hash_of_code(key.code)


def _hash_of_code(code: CodeType) -> str:
    # No source, because of exec or an interactive shell: use the compiled code instead.
    return _short_hash(code.co_code + repr(code.co_names).encode())


def _short_hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
