"""`@tool`: a typed Python function as a tool; `declare_activity` and `declare_workflow` for those of others."""

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from types import CodeType
from typing import Any, Literal, TypeVar, overload

from dagwright.core.boundary import wire
from dagwright.core.model.argument_checks import SchemaOfTool
from dagwright.core.model.compiled import DEFAULT_TIMEOUT_S
from dagwright.core.model.resolvers import Resolver
from dagwright.core.model.times import LONGEST, Duration, parse_duration
from dagwright.core.model.tools import Effects, ToolDeclaration, problem_of_rule
from dagwright.core.model.worker_cards import WorkerCard
from dagwright.tools.docstrings import documentation_of
from dagwright.tools.parameters import Parameters, output_schema_of, parameters_of

NAME_LIMIT_BYTES = 200
"""The same as a node id; Temporal wedges a run on an activity type of over 1,000 bytes."""

_VERSIONS_CACHED = 512
"""Functions whose version is stored: a process has about 100 tools, and builds some of them again."""
_ATTRIBUTE = "__dagwright_tool__"

EffectsName = Literal["pure", "read", "idempotent", "write"]
"""Value of an `Effects`."""
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool: what a plan knows of it, and the code behind it.

    Args:
        declaration: what a plan knows.
        function: the Python function; `None` if another worker serves the tool.
        parameters: how the function takes its arguments; `None` if another worker serves the tool.
        aliases: former names; runs in flight still call the tool by them.
    """

    declaration: ToolDeclaration
    function: Callable[..., Any] | None = None
    parameters: Parameters | None = None
    aliases: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The Temporal activity type."""
        return self.declaration.name

    @property
    def version(self) -> str:
        """Short hash of the function's source; empty for a tool of another worker."""
        return self.declaration.version

    @property
    def is_async(self) -> bool:
        """Whether calling the function makes a coroutine."""
        return inspect.iscoroutinefunction(self.function)

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the keyword arguments of the function for a JSON object.

        Raises:
            InvalidArguments: they do not fit.
        """
        if self.parameters is None:
            raise TypeError(f"{self.name!r} is served by another worker; it cannot be called here")
        return self.parameters.bind(arguments)

    def on_queue(self, task_queue: str) -> "ToolSpec":
        """Returns the same tool, served on `task_queue`; a tool of another worker stays where it is."""
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
    asks_models: bool = False,
    effects_by: Mapping[str, Any] | None = None,
    secrets: Sequence[str] | None = None,
    sends_to_hosts: bool = False,
    undo: str | None = None,
    sets: str | None = None,
    returns: str | None = None,
    resolver: Resolver | None = None,
    aliases: Sequence[str] = (),
) -> Callable[[Function], Function]: ...
def tool(  # noqa: PLR0913 - each is one word of the declaration, by keyword
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    effects: Effects | EffectsName = Effects.WRITE,
    timeout: Duration | None = None,
    max_parallel: int | None = None,
    max_attempts: int | None = None,
    schema: Mapping[str, Any] | None = None,
    asks_models: bool = False,
    effects_by: Mapping[str, Any] | None = None,
    secrets: Sequence[str] | None = None,
    sends_to_hosts: bool = False,
    undo: str | None = None,
    sets: str | None = None,
    returns: str | None = None,
    resolver: Resolver | None = None,
    aliases: Sequence[str] = (),
) -> Function | Callable[[Function], Function]:
    """Makes a tool of a typed function; the function itself stays as it is and can be called as before.

    Args:
        name: the activity type; the function's name if left out.
        effects: what a call does to the world; what is not declared counts as `write`.
        timeout: of one attempt: a timedelta, seconds, or text like `30s`; 60 seconds if left out,
            and 1 second for a pure tool that runs together with others.
        max_parallel: calls of the tool that one run keeps in flight at once.
        max_attempts: tries including the first; the default is that of the effects.
        schema: what JSON Schema says of the arguments object beside the types, such as a `oneOf` of parameters of which
            one must be given.
        asks_models: each call asks models by itself, so in a run with a budget it starts only when there is some left.
        effects_by: how the effects of a call depend on an argument, such as
            `{"argument": "method", "default": "GET", "effects": {"GET": "read"}}`; other values have `effects`.
        secrets: names of the secrets that plans may give to the tool; an empty list refuses all, and left out the
            settings of the worker decide.
        sends_to_hosts: whether the settings bind secrets to the hosts that it connects to, as for `http_request`.
        undo: name of the tool that takes the effect of a call back, in a run that does all or nothing; it gets the
            call's `key`, its `arguments` and its `result`, null if nobody knows how the call ended.
        sets: name in a session, without `@`, that the identity of a call's result becomes.
        returns: what the id in a result stands for: an entity type such as `fund`, or something else, such as `role`; a
            plan that gives it to a parameter for another kind of thing is refused before it runs.
        resolver: the resolver whose `find` the tool is: it finds what lookups of plans mean.
        aliases: former names of the tool, so that runs in flight find it after it was renamed; new plans use its name.

    Raises:
        TypeError: a parameter cannot be filled from JSON.
        ValueError: the name, the effects, the timeout, a count or the schema is no such thing.
    """

    def decorate(decorated: Function) -> Function:
        shown = name or str(getattr(decorated, "__name__", ""))
        if not inspect.isfunction(decorated):
            raise TypeError(f"@tool takes a function, not {type(decorated).__name__}")
        if inspect.isgeneratorfunction(decorated) or inspect.isasyncgenfunction(decorated):
            raise TypeError(f"Tool {shown!r}: a tool returns its result; a generator has none, return a list instead")
        documentation = documentation_of(decorated)
        try:
            parameters = parameters_of(decorated, documentation)
        except TypeError as error:
            raise TypeError(f"Tool {shown!r}: {error}") from error
        if schema is not None:
            parameters = replace(parameters, schema=_checked_schema(shown, {**parameters.schema, **schema}))
        declaration = checked_declaration(
            ToolDeclaration(
                name=shown,
                input_schema=parameters.schema,
                max_parallel=max_parallel,
                max_attempts=max_attempts,
                version=version_of(decorated),
                asks_models=asks_models,
                effects_by=None if effects_by is None else dict(effects_by),
                secrets=None if secrets is None else tuple(secrets),
                sends_to_hosts=sends_to_hosts,
                undo=undo,
                sets=sets,
                returns=returns,
                resolver=None if resolver is None else resolver.to_json(),
                description=documentation.summary,
                output_schema=output_schema_of(decorated),
                plain_parameters=parameters.plain,
            ),
            effects,
            timeout=timeout,
        )
        return marked(decorated, ToolSpec(declaration, decorated, parameters, checked_aliases(shown, aliases)))

    return decorate if function is None else decorate(function)


def declare_activity(  # noqa: PLR0913 - each is one word of the declaration, by keyword
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
    """Declares an activity that another worker serves, in any language, so that plans can call it by name.

    Args:
        name: the activity type, exactly as that worker registers it.
        task_queue: the queue that worker polls.
        effects: as for `@tool`.
        input_schema: JSON Schema (2020-12) of the one JSON object the activity takes; `None` takes any.
        timeout: of one attempt, as for `@tool`.
        undo: as for `@tool`.
        sets: as for `@tool`.
        returns: as for `@tool`.
        worker: what it needs and puts out, if it is a worker and answers a WorkerResult.

    Raises:
        ValueError: a value is no such thing; the message names it.
    """
    declaration = ToolDeclaration(
        name=name,
        input_schema=_foreign_schema(name, input_schema),
        task_queue=_foreign_queue(name, task_queue),
        max_parallel=max_parallel,
        max_attempts=max_attempts,
        is_foreign=True,
        undo=undo,
        sets=sets,
        returns=returns,
        description=description or (worker.description if worker is not None else ""),
        worker=worker,
    )
    return ToolSpec(checked_declaration(declaration, effects, timeout=timeout))


def declare_workflow(  # noqa: PLR0913 - each is one word of the declaration, by keyword
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
        name: what plans call it.
        task_queue: the queue of its workers.
        workflow: the workflow type, exactly as its workers register it; by default `name`.
        effects: as for `@tool`. The retries of a node start the workflow again; a `write` is never started again.
        input_schema: JSON Schema (2020-12) of the argument; `None` takes any.
        timeout: of one attempt, as for `@tool`; by default a workflow may take any time. A workflow that continues as
            new gets the time again if it has several attempts.
        undo: as for `@tool`.
        sets: as for `@tool`.
        returns: as for `@tool`.

    Raises:
        ValueError: a value is invalid; the message names it.
    """
    kind = name if workflow is None else workflow
    if not _is_name(kind):
        raise ValueError(f"Tool {name!r}: workflow is {kind!r:.60}, expected a type of 1 to {NAME_LIMIT_BYTES} bytes")
    if kind in wire.KNOWN_WORKFLOWS:
        raise ValueError(f"Tool {name!r}: {kind!r} runs plans; use a node with a sub-plan instead")
    declaration = ToolDeclaration(
        name=name,
        input_schema=_foreign_schema(name, input_schema),
        task_queue=_foreign_queue(name, task_queue),
        max_parallel=max_parallel,
        max_attempts=max_attempts,
        is_foreign=True,
        workflow=kind,
        undo=undo,
        sets=sets,
        returns=returns,
        description=description,
    )
    return ToolSpec(checked_declaration(declaration, effects, timeout=LONGEST if timeout is None else timeout))


def _foreign_queue(name: str, task_queue: str) -> str:
    if not task_queue or task_queue.startswith("/_sys/") or len(task_queue.encode(errors="replace")) > 1000:
        raise ValueError(f"Tool {name!r}: {task_queue!r} cannot be a task queue")
    return task_queue


def _foreign_schema(name: str, schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return None if schema is None else _checked_schema(name, schema)


def checked_aliases(name: str, aliases: Sequence[str]) -> tuple[str, ...]:
    """Return former names of a tool.

    Raises:
        ValueError: they are not names, or one of them is the tool's own.
    """
    given: Sequence[object] = aliases
    if isinstance(given, str) or not all(isinstance(alias, str) and _is_name(alias) for alias in given):
        raise ValueError(f"Tool {name!r}: aliases must be a list of names of 1 to {NAME_LIMIT_BYTES} bytes")
    if name in aliases:
        raise ValueError(f"Tool {name!r}: aliases are its former names, and {name!r} is its name")
    return tuple(dict.fromkeys(aliases))


def _checked_schema(name: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        SchemaOfTool(schema)
    except ValueError as error:
        raise ValueError(f"Tool {name!r}: input_schema: {error}") from error
    return schema


def marked(function: Function, spec: ToolSpec) -> Function:
    """Returns the function, which is known as a tool from then on."""
    setattr(function, _ATTRIBUTE, spec)
    return function


def spec_of(candidate: object) -> ToolSpec | None:
    """Returns the tool that a decorated function or a declared activity is, `None` for anything else."""
    if isinstance(candidate, ToolSpec):
        return candidate
    # Only functions: an object that answers to any attribute (a mock, a lazy module) is not a tool.
    found = vars(candidate).get(_ATTRIBUTE) if inspect.isfunction(candidate) else None
    return found if isinstance(found, ToolSpec) else None


def checked_declaration(
    declaration: ToolDeclaration, effects: Effects | str, *, timeout: Duration | None
) -> ToolDeclaration:
    """Returns a declaration with its effects and its timeout, as `@tool` takes them.

    Raises:
        ValueError: a value is no such thing; the message names it.
    """
    name = declaration.name
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise ValueError("A tool name holds half a character (a lone surrogate)") from error
    if not 0 < size <= NAME_LIMIT_BYTES:
        raise ValueError(f"Tool {name[:50]!r}: a name has 1 to {NAME_LIMIT_BYTES} bytes, this one {size}")
    if effects not in list(Effects):
        raise ValueError(f"Tool {name!r}: effects {effects!r} is none of {', '.join(Effects)}")
    for what, count in (
        ("max_parallel", declaration.max_parallel),
        ("max_attempts", declaration.max_attempts),
    ):
        if count is not None and (type(count) is not int or count < 1):
            raise ValueError(f"Tool {name!r}: {what} is {count!r}, expected a whole number from 1")
    for what, named in (
        ("undo", declaration.undo),
        ("sets", declaration.sets),
        ("returns", declaration.returns),
    ):
        if named is not None and not _is_name(named):
            raise ValueError(
                f"Tool {name!r}: {what} is {named!r:.60}, expected a name of 1 to {NAME_LIMIT_BYTES} bytes"
            )
    if declaration.effects_by is not None and (problem := problem_of_rule(declaration.effects_by)) is not None:
        raise ValueError(f"Tool {name!r}: effects_by: {problem}")
    if declaration.undo is not None and effects in (Effects.PURE, Effects.READ):
        raise ValueError(f"Tool {name!r}: effects {effects} change nothing, so there is nothing to undo")
    if declaration.sets is not None and declaration.sets.startswith("@"):
        raise ValueError(f"Tool {name!r}: sets is {declaration.sets!r}, expected the name without '@'")
    if timeout is None:
        is_left_open = effects == Effects.PURE or declaration.worker is not None
        timeout_s = 0.0 if is_left_open else DEFAULT_TIMEOUT_S
        return replace(declaration, effects=Effects(effects), timeout_s=timeout_s)
    return replace(declaration, effects=Effects(effects), timeout_s=_timeout_s(name, timeout))


def _is_name(text: str) -> bool:
    return 0 < len(text.encode(errors="replace")) <= NAME_LIMIT_BYTES


def _timeout_s(name: str, timeout: Duration) -> float:
    try:
        seconds = parse_duration(timeout).total_seconds() if isinstance(timeout, str) else timeout
    except ValueError as error:
        raise ValueError(f"Tool {name!r}: timeout: {error}") from error
    seconds = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
    if not 0 < seconds <= LONGEST.total_seconds():
        raise ValueError(f"Tool {name!r}: timeout is {timeout!r}, expected over 0 and at most {LONGEST.days}d")
    return seconds


@dataclass(frozen=True, slots=True, eq=False)
class _CodeOf:
    """A code object as a cache key, compared by identity: equal code may come from different source."""

    code: CodeType

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _CodeOf) and self.code is other.code

    def __hash__(self) -> int:
        return id(self.code)


def version_of(function: Callable[..., Any]) -> str:
    """Returns 12 hex digits that change when the source of a function does."""
    inner = inspect.unwrap(function)
    return _version_of(_CodeOf(inner.__code__)) if inspect.isfunction(inner) else _hash_of_code(function.__code__)


@functools.lru_cache(maxsize=_VERSIONS_CACHED)
def _version_of(key: _CodeOf) -> str:
    """Read the source once for all functions that one `def` makes: tokenizing it takes most of declaring a tool."""
    try:
        return _short_hash(inspect.getsource(key.code).encode())
    except (OSError, TypeError):
        return _hash_of_code(key.code)


def _hash_of_code(code: CodeType) -> str:
    # Made by exec or in an interactive shell: no source, so the compiled code stands in for it.
    return _short_hash(code.co_code + repr(code.co_names).encode())


def _short_hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
