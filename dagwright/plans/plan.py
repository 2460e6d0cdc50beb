"""The public `Plan`: read from a file or a text, or built in Python with typed handles."""

import copy
import inspect
import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, ParamSpec, Self, TypeVar, Unpack, overload

from pydantic import JsonValue

from dagwright.core.boundary.arguments import checks_arguments
from dagwright.core.errors import CYCLE, PlanInvalid, Problem, pointer
from dagwright.core.expressions.references import Index, Item, Placeholder
from dagwright.core.expressions.stored_values import Secret
from dagwright.core.model.agents import FeedbackPolicy
from dagwright.core.model.dialect import TEXT_DIALECTS
from dagwright.core.model.plan import PlanDocument
from dagwright.core.model.times import Duration
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.model.value_schemas import INTEGER, ValueSchema
from dagwright.core.name_hints import suggestion
from dagwright.core.validation.plan_values import PlanValues
from dagwright.core.validation.validation import inspect_document
from dagwright.dialects import detect_dialect, to_document
from dagwright.dialects.reading import inline_files, parse_plan_text, read_plan_file
from dagwright.plans.checking import Tools, builtin_declarations, problems_of_plan, values_of_document
from dagwright.plans.drawing import Drawing, draw_plan
from dagwright.plans.handles import Handle, NodeHandle
from dagwright.plans.human_requests import HumanRequest
from dagwright.plans.input_types import input_schema_of
from dagwright.plans.node_builder import NodeBuilder, Work, problem_of_option, problems_of_input
from dagwright.plans.node_options import Approval, CacheTime, Items, Join, Needs, NodeOptions, OnError, Retry, When
from dagwright.plans.node_values import JsonWriter, Text, write_constant, write_duration
from dagwright.plans.yaml_writer import write_yaml
from dagwright.tools.errors import ToolLoadError
from dagwright.tools.spec import ToolSpec, spec_of

P = ParamSpec("P")
R = TypeVar("R")
Tool = Callable[..., Any] | ToolSpec
_NATIVE_DIALECT = "plan"
_FIELD_ORDER = [*PlanDocument.model_fields]
_UNSET: Any = object()


class Plan:
    """A graph of nodes that a run executes.

    Build it in Python, or read it with `Plan.load` and `Plan.parse`:

        plan = Plan("Refill")
        lamps = plan.add(stock, item="lamp")
        plan.add(order, item="lamp", amount=20, when=lamps["left"] < 10)

    Two plans are equal if their documents are equal.
    """

    # A misspelt attribute, such as `plan.outptu = total`, is an error.
    __slots__ = ("_dialect", "_document", "_tools", "_values")

    @checks_arguments
    def __init__(
        self,
        title: str | None = None,
        *,
        deadline: Duration | None = None,
        on_failure: Literal["continue", "fail_fast"] = "continue",
        metadata: Mapping[str, Any] | None = None,
        tools: Iterable[Tool] = (),
    ) -> None:
        """Create an empty plan.

        Args:
            title: human-readable title.
            deadline: time limit of the whole run.
            on_failure: `fail_fast` stops the run at the first failure.
            metadata: additional data of the plan; `description` is displayed where plans are published.
            tools: tools that nodes call by name, so that `add` can check the arguments. Functions that are given to
                `add` need not be listed.

        Raises:
            PlanInvalid: the deadline is invalid, or the metadata is not JSON.
            TypeError: an object is not a tool.
            ToolLoadError: two tools have the same name.
        """
        document: dict[str, JsonValue] = {"plan": 1}
        if title is not None:
            document["title"] = title
        if metadata:
            document["metadata"] = write_constant(metadata, "metadata")
        if on_failure != "continue":
            document["on_failure"] = on_failure
        if deadline is not None:
            document["deadline"] = write_duration(deadline, "deadline")
        document["nodes"] = []
        self._document: JsonValue = document
        self._dialect = _NATIVE_DIALECT
        self._values: PlanValues | None = PlanValues()
        self._tools: dict[str, ToolSpec] = {}
        for tool in tools:
            self._register_tool(_require_spec(tool))

    @classmethod
    @checks_arguments
    def load(cls, path: str | Path) -> Self:
        """Read a plan from a JSON or YAML file in any dialect, with the files of its sub-plans.

        Raises:
            PlanInvalid: a file cannot be read, or is not a plan; `check` reports problems within the plan.
        """
        file = Path(path)
        return cls._from_document(inline_files(read_plan_file(file), base=file.parent), None)

    @classmethod
    @checks_arguments
    def parse(cls, source: JsonValue | Mapping[str, Any], *, dialect: str | None = None) -> Self:
        """Read a plan from a text in JSON, YAML or a text dialect, or from a JSON value.

        Args:
            source: the plan, which is copied.
            dialect: by default detected from the shape.

        Raises:
            PlanInvalid: the source is not a plan; `check` reports problems within the plan.
        """
        if isinstance(source, str):
            if "\n" not in source and source.strip().endswith((".yaml", ".yml", ".json")):
                message = f"{source!r:.80} looks like the name of a file, not like a plan"
                raise PlanInvalid([Problem("invalid_syntax", message, hint="pass a path to Plan.load")])
            return cls._from_document(parse_plan_text(source, name="the plan"), dialect)
        return cls._from_document(copy.deepcopy(dict(source) if isinstance(source, Mapping) else source), dialect)

    @classmethod
    def _from_document(cls, document: JsonValue, dialect: str | None) -> Self:
        plan = cls()
        plan._document = document
        plan._dialect = dialect or detect_dialect(document)
        to_document(document, dialect=plan._dialect)
        plan._values = None
        return plan

    @property
    def _plan_values(self) -> PlanValues:
        """Schemas of the values of the plan; for a plan that was read, derived on first use."""
        if self._values is None:
            document = to_document(self._document, dialect=self._dialect)
            self._values = values_of_document(document, tools=self._declarations)
        return self._values

    @property
    def _declarations(self) -> dict[str, ToolDeclaration]:
        return {**builtin_declarations(), **{spec.name: spec.declaration for spec in self.tools}}

    def _handle(self, node_id: str) -> NodeHandle[Any]:
        return NodeHandle(node_id, owner=self, schema=self._plan_values.results[node_id])

    # Content.

    @property
    def title(self) -> str | None:
        """Human-readable title."""
        title = self._document.get("title") if isinstance(self._document, dict) else None
        return title if isinstance(title, str) else None

    @property
    def dialect(self) -> str:
        """Name of the format that the plan is written in; `plan` is Dagwright's own."""
        return self._dialect

    @property
    def nodes(self) -> tuple[NodeHandle[Any], ...]:
        """The nodes, in their order."""
        return tuple(map(self._handle, self._plan_values.results))

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that were added as functions, also by sub-plans. A client compiles the plan with these tools."""
        return tuple(self._tools.values())

    @checks_arguments
    def __getitem__(self, node_id: str) -> NodeHandle[Any]:
        """Return the handle of a node.

        Raises:
            PlanInvalid: there is no such node.
        """
        if node_id not in self._plan_values.results:
            hint = suggestion(node_id, self._plan_values.results)
            raise PlanInvalid([Problem("invalid_reference", f"the plan has no node {node_id!r:.80}", hint=hint)])
        return self._handle(node_id)

    @property
    def document(self) -> JsonValue:
        """A copy of the plan as a JSON value: an object, or for some dialects a list or a text."""
        return copy.deepcopy(self._shared_document)

    @property
    def _shared_document(self) -> JsonValue:
        """The plan as a JSON value, not copied, because copying a large plan takes 0.1 s."""
        document = self._document
        if self._dialect != _NATIVE_DIALECT or not isinstance(document, dict):
            return document
        ordered_fields = {name: document[name] for name in _FIELD_ORDER if name in document}
        return ordered_fields | document

    def to_dict(self) -> dict[str, JsonValue]:
        """Return the plan as an object.

        Raises:
            TypeError: documents of the plan's dialect are lists or texts; use `document`.
        """
        document = self.document
        if not isinstance(document, dict):
            raise TypeError(f"a plan of the dialect {self._dialect!r} is not an object; use plan.document")
        return document

    def to_yaml(self) -> str:
        """Return a text that `Plan.parse` parses as an equal plan: YAML, or the text of a text dialect."""
        document = self.document
        return document if isinstance(document, str) and self._dialect in TEXT_DIALECTS else write_yaml(document)

    def __eq__(self, other: object) -> bool:
        """Return whether both plans have equal documents in the same dialect."""
        if not isinstance(other, Plan):
            return NotImplemented
        return self._dialect == other._dialect and _canonical_json(self._document) == _canonical_json(other._document)

    __hash__ = None  # type: ignore[assignment] # a plan can be changed

    def __contains__(self, node_id: object) -> bool:
        """Return whether the plan has a node with this ID."""
        return node_id in self._plan_values.results

    def __iter__(self) -> Iterator[NodeHandle[Any]]:
        """Iterate over the nodes, in their order."""
        return iter(self.nodes)

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self._plan_values.results)

    def __bool__(self) -> bool:
        """Return true, also for a plan without nodes."""
        return True

    def __repr__(self) -> str:
        title = f" {self.title!r:.60}" if self.title else ""
        return f"<Plan{title}: {len(self)} nodes>"

    @checks_arguments
    def check(self, tools: Tools | None = None, *, allow_unknown_tools: bool = False) -> list[Problem]:
        """Return all problems of the plan; empty if it can run.

        Args:
            tools: tools that the plan may call, besides built-in tools and tools that were added as functions.
                Each is a function, a declared activity, a module, a module name or a `.py` file.
            allow_unknown_tools: accept unknown tools, without a check of their arguments.

        Raises:
            TypeError: an object is not a tool.
            ToolLoadError: a module cannot be loaded, or has no tool, or two tools have the same name.
        """
        return problems_of_plan(
            self._document,
            dialect=self._dialect,
            plan_tools=self._declarations,
            tools=() if tools is None else tools,
            allow_unknown_tools=allow_unknown_tools,
        )

    def draw(self) -> Drawing:
        """Return a drawing of the plan, which notebooks display; a plan with problems can be drawn too.

        Raises:
            PlanInvalid: the plan has no nodes, or a dependency cycle.
        """
        document = to_document(self._document, dialect=self._dialect)
        checked, problems = inspect_document(document, tools=self._declarations, allow_unknown_tools=True)
        fatal_problems = [problem for problem in problems if problem.code in (CYCLE, "empty_plan")]
        if checked is None or fatal_problems:
            raise PlanInvalid(fatal_problems or problems)
        return draw_plan(checked)

    # Inputs and outputs.

    @checks_arguments
    def input(
        self,
        name: str,
        *,
        type: Any = str,
        prompt: str | None = None,
        default: Any = _UNSET,
        schema: Mapping[str, Any] | None = None,
    ) -> Handle[Any]:
        """Declare an input, whose value is given when a run starts, and return its handle.

        Args:
            name: letters, digits and `_`.
            type: a Python type, such as `int` or `list[str]`, or the name of a JSON type.
            prompt: question to a person if the value is missing.
            default: value of the input if the run is started without a value.
            schema: JSON Schema that is added to `type`, such as `{"minimum": 0}`. A `type` in the schema replaces the
                argument.

        Raises:
            PlanInvalid: the name is invalid or already used, the default has another type, the schema is invalid, or
                the plan is not in Dagwright's own format.
            TypeError: the type has no JSON Schema.
        """
        document = self._editable_document()
        declaration: dict[str, JsonValue] = {} if schema is not None and "type" in schema else input_schema_of(type)
        declaration |= dict(schema or {})
        declaration |= {"prompt": prompt} if prompt is not None else {}
        declaration |= {"default": write_constant(default, "inputs", name, "default")} if default is not _UNSET else {}
        inputs = document.get("inputs", {})
        at = pointer("inputs", name)
        if not isinstance(inputs, dict) or name in inputs:
            raise PlanInvalid([Problem("invalid_field", f"the input {name!r:.80} is already declared", at)])
        if not name.isascii() or not name.replace("_", "a").isalnum():
            raise PlanInvalid([Problem("invalid_field", f"{name!r:.80}: an input has letters, digits and _", at)])
        if problems := problems_of_input(name, declaration):
            raise PlanInvalid(problems)
        document["inputs"] = {**inputs, name: declaration}
        self._plan_values.inputs[name] = ValueSchema(declaration)
        return Handle(Placeholder(name), owner=self, schema=self._plan_values.inputs[name])

    @checks_arguments
    def secret(self, name: str) -> Handle[str]:
        """Return the handle of a secret, which the worker fills in: the history of the run has only its name.

        Raises:
            PlanInvalid: the name has characters other than ASCII letters, digits and `_`.
        """
        if not name.isascii() or not name.replace("_", "a").isalnum():
            message = f"{name!r:.80}: the name of a secret has letters, digits and _"
            raise PlanInvalid([Problem("invalid_reference", message)])
        return Handle(Secret(name), owner=self)

    @property
    def item(self) -> Handle[Any]:
        """The current item of the node's `for_each`. `handle.item` is the same, but also knows the item's type."""
        return Handle(Item(), owner=self)

    @property
    def index(self) -> Handle[int]:
        """Position of the current item of the node's `for_each`, from 0."""
        return Handle(Index(), owner=self, schema=INTEGER)

    @checks_arguments
    def text(self, template: str, /, **values: object) -> Text:
        """Return a text with values in it. Text of the template that looks like a reference is literal.

        Args:
            template: as for `str.format`, such as `"{count} lamps"`.
            values: handles, or other values, which are converted to texts.

        Raises:
            TypeError: a value is missing or unused, or a format specification is given.
        """
        return Text(template, values)

    @property
    def output(self) -> JsonValue:
        """Output of a run, with references; set it to a handle, or to a value that contains handles."""
        output = self._editable_document().get("output")
        return copy.deepcopy(output)

    @output.setter
    def output(self, value: object) -> None:
        writer = JsonWriter()
        document = writer.write(value)
        for path, use in writer.uses:
            if use.owner is not self or use.differs_per_item or use.is_secret:
                message = f"{use.handle!r} cannot be used in the output: expected results and inputs of this plan"
                raise PlanInvalid([Problem("invalid_reference", message, pointer("output", *path))])
        self._editable_document()["output"] = document

    # Nodes.

    def add(  # noqa: PLR0913 - each is one field of a node, by keyword
        self,
        target: "Tool | str | HumanRequest | Plan | Path",
        /,
        *,
        id: str | None = None,
        title: str | None = None,
        needs: Needs = (),
        when: When | None = None,
        for_each: Items | None = None,
        key: Handle[Any] | Text | str | None = None,
        max_parallel: int | None = None,
        join: Join | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        heartbeat: Duration | None = None,
        on_error: OnError | None = None,
        approval: Approval | None = None,
        priority: int | None = None,
        effects: Literal["idempotent"] | None = None,
        cache: CacheTime | None = None,
        metadata: Mapping[str, Any] | None = None,
        arguments: Mapping[str, Any] | None = None,
        **more_arguments: Any,
    ) -> NodeHandle[Any]:
        """Add a node, and return its handle, a placeholder for its result.

        Keywords that are not listed below are arguments of the tool, or inputs of the sub-plan: values, handles, or
        lists, objects and f-strings with handles. Names and types are checked when the program builds the plan, because
        Python's types cannot express "this parameter's type, or a handle". Type checkers check the arguments of `call`.

        Args:
            target: a function with `@tool`, the name of a tool, `ask_human(...)`, a sub-plan, or the path of a
                sub-plan's file.
            id: ID of the node; by default derived from the tool.
            title: human-readable title, shown instead of the ID.
            needs: nodes that must end first, in addition to nodes whose values this node reads.
            when: condition under which the node runs: a comparison of handles, or a CEL text.
            for_each: the node runs once for each item of this list; arguments read `handle.item` and `handle.index`.
            key: unique name of an item; by default its index.
            max_parallel: maximum concurrent items.
            join: how many dependencies the node waits for: `all`, `any`, `all_done`, or a number.
            retry: maximum attempts, or `max_attempts`, `first_delay`, `factor` and `max_delay`.
            timeout: timeout of one attempt.
            heartbeat: timeout between two heartbeats; when it expires, the attempt is retried.
            on_error: after a failure, `block` or `skip` dependents, `ask` a person, or complete with `{"value": ...}`.
            approval: `required` requests the approval of a person first; `ask_human(...)` configures the request.
            priority: from 1 (first) to 5.
            effects: `idempotent` declares this call idempotent, for tools whose effects depend on the arguments.
            cache: how long the result of an identical call may be reused; `off` disables the cache.
            metadata: additional data of the node, for programs.
            arguments: arguments of the tool that have the name of an option of this method.
            more_arguments: all other arguments of the tool.

        Raises:
            PlanInvalid: a name, a value or a handle is invalid; for an unknown name, the hint is the most similar name.
            TypeError: the function is not a tool, or a value has the wrong type.
            ToolLoadError: another tool of the plan has the name of the function.
        """
        options = NodeOptions(
            id=id, title=title, needs=needs, when=when, for_each=for_each, key=key, max_parallel=max_parallel,
            join=join, retry=retry, timeout=timeout, heartbeat=heartbeat, on_error=on_error, approval=approval,
            priority=priority, effects=effects, cache=cache, metadata=metadata,
        )  # fmt: skip
        if not isinstance(arguments, Mapping | None):
            raise TypeError(f"add(): arguments must be a mapping, not {arguments!r:.60}")
        work, arguments_of_call = self._work_of(target), {**(arguments or {}), **more_arguments}
        if (problem := problem_of_option(work.parameters, options, arguments_of_call)) is not None:
            raise PlanInvalid([problem])
        return self._add(work, arguments_of_call, options)

    @overload
    def call(
        self, tool: Callable[P, Coroutine[Any, Any, R]], /, **options: Unpack[NodeOptions]
    ) -> Callable[P, NodeHandle[R]]: ...
    @overload
    def call(self, tool: Callable[P, R], /, **options: Unpack[NodeOptions]) -> Callable[P, NodeHandle[R]]: ...
    def call(self, tool: Callable[..., Any], /, **options: Unpack[NodeOptions]) -> Callable[..., NodeHandle[Any]]:
        """Return a function that adds a node and has the parameters of the tool, so that type checkers check them.

        `plan.call(order, when=lamps["left"] < 10)(item="lamp", amount=20)` adds the same node as `add`. To
        pass a handle in place of a value, write `handle.value`, which has the static type of the value.

        Args:
            tool: a function with `@tool`.
            options: the options of `add`.

        Raises:
            TypeError: the function is not a tool.
            ToolLoadError: another tool of the plan has the name of the function.
        """
        work = self._work_of(tool)

        def add(*positional: Any, **arguments: Any) -> NodeHandle[Any]:
            arguments_by_name = inspect.signature(tool).bind_partial(*positional).arguments
            for name in arguments_by_name.keys() & arguments.keys():
                raise TypeError(f"{work.name}(): the argument {name!r} is given twice")
            return self._add(work, {**arguments_by_name, **arguments}, options)

        return add

    @checks_arguments
    def add_agent(  # noqa: PLR0913 - each is one field of an agent, by keyword
        self,
        objective: str | Text | Handle[str],
        /,
        *,
        agent: str | None = None,
        prompt: str | None = None,
        tools: Sequence[Tool | str] = (),
        max_turns: int | None = None,
        token_limit: int | None = None,
        output_schema: Mapping[str, Any] | None = None,
        feedback_policy: FeedbackPolicy | None = None,
        **options: Unpack[NodeOptions],
    ) -> NodeHandle[Any]:
        """Add a node that runs an agent: a model with tools.

        Args:
            objective: task of the agent; it may contain handles.
            agent: name of an agent that the run knows. The arguments from `prompt` to `feedback_policy` define a new
                agent instead.
            prompt: instructions of a new agent, which belongs to this plan.
            tools: functions with `@tool`, or names of tools.
            max_turns: maximum number of model calls.
            token_limit: maximum number of tokens of all model calls together.
            output_schema: JSON Schema of the agent's answer; by default a text.
            feedback_policy: when the agent may send requests to people.
            options: the options of `add`.

        Raises:
            PlanInvalid: a value is invalid.
            TypeError: both or neither of `agent` and `prompt` are given.
        """
        if (agent is None) == (prompt is None):
            raise TypeError("give either agent= (the name of an agent) or prompt= (the instructions of a new agent)")
        specs = [spec for spec in map(spec_of, tools) if spec is not None]
        card: dict[str, object] = {
            "prompt": prompt,
            "tools": [tool if isinstance(tool, str) else _require_spec(tool).name for tool in tools] or None,
            "max_turns": max_turns,
            "token_limit": token_limit,
            "output_schema": output_schema,
            "feedback_policy": feedback_policy,
        }
        inline_agent = {name: part for name, part in card.items() if part is not None}
        if agent is not None and inline_agent:
            raise TypeError(
                f"{next(iter(inline_agent))}= configures a new agent; it cannot be combined with agent={agent!r}"
            )
        work = Work("agent", agent if agent is not None else inline_agent, agent or "agent")
        handle = self._add(work, {}, options, objective=objective)
        for spec in specs:
            self._register_tool(spec)
        return handle

    def _add(
        self, work: Work, arguments: Mapping[str, object], options: NodeOptions, **fields: object
    ) -> NodeHandle[Any]:
        nodes = self._editable_document()["nodes"]
        assert isinstance(nodes, list)
        builder = NodeBuilder(self, self._plan_values, len(nodes), self._declarations)
        document, handle = builder.build(work, arguments, options, **fields)
        nodes.append(document)
        return handle

    def _work_of(self, target: object) -> Work:
        if isinstance(target, str):
            return self._work_of_tool(target)
        if isinstance(target, HumanRequest):
            return Work("human", target.fields, "ask")
        if isinstance(target, Plan):
            return self._work_of_plan(target)
        if isinstance(target, Path):
            return replace(self._work_of_plan(Plan.load(target)), name=target.stem)
        spec = _require_spec(target)
        self._register_tool(spec)
        return self._work_of_tool(spec.name)

    def _work_of_tool(self, name: str) -> Work:
        declaration = self._declarations.get(name)
        schema = (declaration.input_schema if declaration is not None else None) or {}
        return Work("tool", name, name, schema.get("properties", {}))

    def _work_of_plan(self, plan: "Plan") -> Work:
        if plan is self:
            raise PlanInvalid([Problem("cycle", "a plan cannot be a node of itself", pointer("nodes"))])
        for spec in plan.tools:
            self._register_tool(spec)
        return Work("plan", plan.document, plan.title or "plan", plan._plan_values.inputs)

    def _register_tool(self, spec: ToolSpec) -> None:
        """Register a tool, so that `check` and clients know it.

        Raises:
            ToolLoadError: another tool of the plan has the same name.
        """
        if self._tools.setdefault(spec.name, spec) is not spec:
            raise ToolLoadError(f"two tools of the plan are called {spec.name!r}")

    def _editable_document(self) -> dict[str, JsonValue]:
        if self._dialect != _NATIVE_DIALECT or not isinstance(self._document, dict):
            message = f"a plan in the dialect {self._dialect!r} cannot be changed in Python"
            raise PlanInvalid([Problem("invalid_field", message, hint="use it as a sub-plan: plan.add(other_plan)")])
        return self._document


def _require_spec(candidate: object) -> ToolSpec:
    spec = spec_of(candidate)
    if spec is None:
        name = getattr(candidate, "__name__", repr(candidate))
        raise TypeError(f"{name!s:.80} is not a tool; decorate the function with @tool")
    return spec


def _canonical_json(document: JsonValue) -> str:
    return json.dumps(document, sort_keys=True)
