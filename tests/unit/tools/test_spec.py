"""`@tool` and `declare_activity`: schemas, conversion of arguments, and checks of arguments before a run."""

import dataclasses
import sys
import typing
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any

import pydantic
import pytest

from dagwright.core.errors import PlanInvalid
from dagwright.core.model.times import MAX_DURATION
from dagwright.core.model.tools import Effects
from dagwright.plans.preparation import check_plan
from dagwright.tools import declare_activity, declare_workflow, tool
from dagwright.tools.builtin import builtin_tools
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import InvalidArguments
from tests.support.function_harness import require_spec


class Window(pydantic.BaseModel):
    start: date
    days: int = 1


@dataclasses.dataclass
class Transfer:
    amount: int
    to_account: str = "main"


def test_bare_decorator_declares_a_write_named_like_the_function() -> None:
    @tool
    def publish(report: str) -> str:
        """Publishes a report.

        To everyone.

        Args:
            report: what to publish
        """
        return report

    declaration = require_spec(publish).declaration
    assert publish(report="r") == "r"
    assert (declaration.name, declaration.effects, declaration.timeout_s) == ("publish", Effects.WRITE, 60.0)
    assert declaration.description == "Publishes a report. To everyone."
    assert declaration.input_schema == {
        "type": "object",
        "properties": {"report": {"type": "string", "description": "what to publish"}},
        "required": ["report"],
        "additionalProperties": False,
    }
    assert len(declaration.version) == 12


def test_decorator_accepts_name_effects_timeout_and_limits() -> None:
    @tool(name="cbu.ensure", effects="idempotent", timeout="5m", max_parallel=3, max_attempts=7, undo="u", sets="cbu")
    async def ensure(name: str) -> str:
        return name

    declaration = require_spec(ensure).declaration
    assert (declaration.name, declaration.effects, declaration.timeout_s) == ("cbu.ensure", Effects.IDEMPOTENT, 300.0)
    assert (declaration.max_parallel, declaration.max_attempts, require_spec(ensure).is_async) == (3, 7, True)
    assert (declaration.undo, declaration.sets) == ("u", "cbu")


def test_dash_in_an_argument_name_equals_an_underscore() -> None:
    @tool
    def assign(cbu_id: str, role: str) -> None: ...

    assert require_spec(assign).bind({"cbu-id": "c1", "role": "r"}) == {"cbu_id": "c1", "role": "r"}
    with pytest.raises(InvalidArguments, match="cbu_id is given twice"):
        require_spec(assign).bind({"cbu-id": "c1", "cbu_id": "c2", "role": "r"})


def test_single_model_or_dataclass_parameter_receives_the_whole_object() -> None:
    @tool
    def look(window: Window) -> None: ...

    @tool
    def move(transfer: Transfer) -> None: ...

    assert require_spec(look).bind({"start": "2024-02-01"}) == {"window": Window(start=date(2024, 2, 1))}
    assert require_spec(move).bind({"amount": 3, "to-account": "x"}) == {"transfer": Transfer(3, "x")}
    with pytest.raises(InvalidArguments, match="/colour: no such parameter; /amount: Field required"):
        require_spec(move).bind({"colour": "red"})


def test_arbitrary_keyword_arguments_accept_any_value_unchanged() -> None:
    @tool
    def anything(first: int = 0, **arguments: Any) -> None: ...

    @tool
    def counts(**arguments: int) -> None: ...

    assert require_spec(anything).bind({"a-b": [1], "first": 2}) == {"first": 2, "a-b": [1]}
    assert require_spec(counts).parameters is not None
    with pytest.raises(InvalidArguments, match="/b: Input should be a valid integer"):
        require_spec(counts).bind({"a": 1, "b": "x"})


def test_every_wrong_argument_is_named_and_no_value_is_shown() -> None:
    @tool
    def send(to: list[int | None], text: str) -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        require_spec(send).bind({"to": [1, "hunter2"], "extra/key": "hunter2"})
    assert str(caught.value) == (
        "Invalid arguments: /extra~1key: no such parameter; "
        "/to/1: Input should be a valid integer, unable to parse string as an integer; /text: Field required"
    )


def test_schemas_are_shared_only_between_equal_signatures() -> None:
    def schema_of(default: object, annotation: object) -> Any:
        def repeat(times: Any = default) -> None: ...

        repeat.__annotations__ = {"times": annotation}
        return dict(require_spec(tool(repeat)).declaration.input_schema or {})["properties"]["times"]

    first_schema = schema_of(1, int)
    first_schema["description"] = "a caller's change"
    assert schema_of(1, int) == {"type": "integer", "default": 1}
    assert schema_of(True, int)["default"] is True
    assert type(schema_of(1.0, int)["default"]) is float
    assert schema_of(1, Annotated[int, pydantic.Field(ge=1)])["minimum"] == 1
    assert schema_of(1, Annotated[int, pydantic.Field(ge=0)])["minimum"] == 0


def test_parameter_may_be_named_like_a_pydantic_attribute_and_have_a_non_json_default() -> None:
    marker = object()

    @tool
    def use_pydantic_names(schema: str, model_config: str, json: int = 1, rest: Any = marker) -> Any:
        return rest

    arguments = {"schema": "a", "model_config": "b"}
    assert require_spec(use_pydantic_names).bind(arguments) == arguments


def test_version_differs_if_the_source_differs() -> None:
    def return_one() -> int:
        return 1

    def return_two() -> int:
        return 2

    assert require_spec(tool(return_one)).version != require_spec(tool(return_two)).version


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"timeout": "soon"}, "'soon' is not a duration"),
        ({"timeout": timedelta(0)}, "expected over 0"),
        ({"max_parallel": 0}, "max_parallel is 0"),
        ({"max_attempts": 0}, "max_attempts is 0"),
        ({"undo": ""}, "undo is '', expected a name"),
        ({"undo": "x" * 201}, "expected a name of 1 to 200 bytes"),
        ({"undo": "back", "effects": "read"}, "effects read change nothing, so there is nothing to undo"),
        ({"batch": True, "effects": "write"}, "batch: effects is write, expected read or idempotent: a write must not"),
        ({"batch": True, "effects": "pure"}, "pure calls share activities already"),
        ({"batch": True, "effects": "read", "max_parallel": 2}, "calls of a tool with max_parallel need activities"),
        ({"sets": "@cbu"}, "sets is '@cbu', expected the name without '@'"),
        ({"name": "x" * 201}, "a name has 1 to 200 bytes, not 201"),
        ({"name": "\ud800"}, "lone surrogate"),
    ],
)
def test_invalid_option_values_are_rejected(options: dict[str, Any], problem: str) -> None:
    def plain() -> None: ...

    with pytest.raises(ValueError, match=problem):
        tool(**options)(plain)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"effects": "harmless"}, "effects must be a member of Effects or one of 'pure', 'read', "),
        ({"max_attempts": True}, "max_attempts must be an integer, not True"),
        ({"timeout": [1]}, r"timeout must be a timedelta, a number or a string, not \[1\]"),
        ({"name": 3}, "name must be a string, not 3"),
        ({"secrets": "TOKEN"}, "secrets must be a list of strings, not 'TOKEN'"),
        ({"schema": "object"}, "schema must be a mapping with string keys, not 'object'"),
    ],
)
def test_error_names_an_option_of_a_wrong_type(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(TypeError, match=rf"^tool\(\): {problem}"):
        tool(**options)


class _Row(typing.TypedDict):
    a: int


def test_parameters_that_json_cannot_fill_are_rejected() -> None:
    def positional(a: int, /) -> None: ...

    def star(*a: int) -> None: ...

    def opaque(a: pytest.MonkeyPatch) -> None: ...

    def generator(a: int) -> Iterator[int]:
        yield a

    def typing_typed_dict(a: _Row) -> None: ...

    def unknown(a: "NoSuchType") -> None: ...  # type: ignore[name-defined] # noqa: F821 - the point of the test

    rejected_functions: list[tuple[Callable[..., Any], str]] = [
        (positional, "parameter 'a' has no keyword"),
        (star, "parameter 'a' has no keyword"),
        (opaque, "parameter 'a' cannot be filled from JSON"),
        (unknown, "'NoSuchType' is not defined"),
        (generator, "a generator has no result"),
    ]
    if sys.version_info < (3, 12):
        rejected_functions.append((typing_typed_dict, "typing_extensions.TypedDict"))
    for function, problem in rejected_functions:
        with pytest.raises(TypeError, match=problem):
            tool(function)


def test_declared_activity_has_no_function_and_stays_on_its_queue() -> None:
    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    charge = declare_activity("charge_card", "billing", effects="write", input_schema=schema, timeout=30)
    assert charge.declaration.is_foreign
    assert charge.with_queue("mine").declaration.task_queue == "billing"
    assert (charge.function, charge.declaration.timeout_s, charge.declaration.input_schema) == (None, 30.0, schema)
    with pytest.raises(ValueError, match="input_schema: not a valid JSON Schema"):
        declare_activity("charge_card", "billing", input_schema={"type": "thing"})
    with pytest.raises(ValueError, match="is not a valid task queue"):
        declare_activity("charge_card", "/_sys/billing")


# Validation before a run.

TOOLS = builtin_tools(ToolEnvironment(Path())).declarations()


def _problems_of(name: str, arguments: dict[str, Any]) -> list[tuple[str, str, str]]:
    found_node = {"id": "found", "tool": "json_query", "arguments": {"value": [1], "path": "$"}}
    # The result type of the node `before` is unknown.
    before_node = {"id": "before", "plan": {"nodes": [found_node], "output": "{{found.result[0]}}"}}
    try:
        check_plan({"nodes": [before_node, {"id": "a", "tool": name, "arguments": arguments}]}, TOOLS)
    except PlanInvalid as error:
        return [(problem.code, problem.pointer, problem.message) for problem in error.problems]
    return []


UNIT_ADVICE = "write a number and a unit, such as 500ms, 30s, 5m, 2h or 7d"
URL_ADVICE = "it must start with http:// or https:// and a host"


@pytest.mark.parametrize(
    ("name", "arguments", "argument_pointer", "message"),
    [
        ("calculator", {}, "", "exactly one of 'expression' or 'query' must be given"),
        ("calculator", {"expression": None}, "", "exactly one of 'expression' or 'query' must be given"),
        ("calculator", {"expression": "1", "query": 2}, "", "exactly one of 'expression' or 'query' must be given"),
        ("wait", {"duration": "5 parsecs"}, "/duration", f"'5 parsecs' is not a duration; {UNIT_ADVICE}"),
        ("wait", {"duration": -1}, "/duration", "-1 is less than the minimum of 0"),
        ("wait", {"duration": 3e9}, "/duration", "3000000000.0 is greater than the maximum of 2592000.0"),
        (
            "json_query",
            {"value": 1, "path": "["},
            "/path",
            "'[' is not a JSONPath query: expected 'TOKEN_ROOT', found 'TOKEN_LBRACKET'",
        ),
        ("http_request", {"url": "nope"}, "/url", f"'nope' is not a URL; {URL_ADVICE}"),
        ("http_request", {"url": "ftp://{host}"}, "/url", f"'ftp://{{host}}' is not a URL; {URL_ADVICE}"),
    ],
)
def test_wrong_argument_is_reported_before_the_run(
    name: str, arguments: dict[str, Any], argument_pointer: str, message: str
) -> None:
    assert _problems_of(name, arguments) == [
        ("invalid_arguments", f"/nodes/1/arguments{argument_pointer}", f"{name}: {message}")
    ]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("calculator", {"expression": "1", "query": None}),
        ("calculator", {"query": "{{before.result}}"}),
        ("calculator", {"expression": "{{before.result}}", "query": "{{before.error}}"}),
        ("wait", {"duration": 0}),
        ("wait", {"duration": " 5s "}),
        ("wait", {"duration": "{{before.result}} parsecs"}),
        ("json_query", {"value": 1, "path": "$..price"}),
        ("json_query", {"value": 1, "path": "{{before.result}}"}),
        ("http_request", {"url": "HTTPS://example.com"}),
        ("http_request", {"url": "{{before.result}}/x"}),
    ],
)
def test_valid_arguments_and_references_are_accepted(name: str, arguments: dict[str, Any]) -> None:
    assert _problems_of(name, arguments) == []


def test_invalid_schema_is_rejected_by_the_decorator() -> None:
    with pytest.raises(ValueError, match="Tool 'with_invalid_schema': input_schema: not a valid JSON Schema"):

        @tool(schema={"oneOf": 5})
        def with_invalid_schema(a: int = 0) -> int:
            return a


def test_declared_workflow_is_a_foreign_tool_with_the_maximum_timeout_by_default() -> None:
    ship = declare_workflow("ship", "shop", workflow="ShipOrder", effects="idempotent", timeout="2d").declaration
    assert (ship.workflow, ship.is_foreign, ship.task_queue, ship.timeout_s) == ("ShipOrder", True, "shop", 172_800.0)
    assert declare_workflow("ship", "shop").declaration.workflow == "ship"
    assert declare_workflow("ship", "shop").declaration.timeout_s == MAX_DURATION.total_seconds()
    with pytest.raises(ValueError, match="'RunPlan' runs plans"):
        declare_workflow("ship", "shop", workflow="RunPlan")
    with pytest.raises(ValueError, match="workflow is ''"):
        declare_workflow("ship", "shop", workflow="")
