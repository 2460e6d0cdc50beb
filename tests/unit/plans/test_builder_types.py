"""Types of values in a plan built in Python: the line that uses a missing part or a wrong type raises the error."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict  # as in tools: pydantic needs it before Python 3.12

from dagwright.core.errors import PlanInvalid
from dagwright.plans.human_requests import ask_human
from dagwright.plans.plan import Plan
from dagwright.tools import tool
from tests.support.shop_tools import articles, order, stock


class Price(TypedDict):
    """A price."""

    net: float


class Shelf(BaseModel):
    """A shelf, with an optional model, a list, a tuple and a choice."""

    price: Price | None = None
    prices: list[Price]
    size: tuple[int, str]
    color: Literal["red", "green"] = "red"


@dataclass
class Room:
    """A room."""

    shelf: Shelf


@tool(effects="read")
async def shelf(name: str) -> Shelf | None:
    """Return a shelf."""


@tool(effects="read")
async def measure(target: Shelf, amounts: list[int] | None = None, room: Room | None = None) -> float:
    """Measure a shelf."""
    return 1.5


@tool(effects="pure")
def convert(value: float, flag: bool = False) -> str:
    """Convert a number."""
    return str(value)


def gross_plan() -> Plan:
    """Return a plan with the input `net` and the output `{gross, all, note}`."""
    plan = Plan("Gross")
    net = plan.input("net", type=float)
    gross = plan.add("calculator", expression=f"{net} * 1.2")
    plan.output = {"gross": gross, "all": [net, gross], "note": f"from {net}"}
    return plan


class SamplePlan:
    """A plan with one node of each kind."""

    def __init__(self) -> None:
        self.plan = Plan()
        self.net = self.plan.input("net", type=float)
        self.lamp = self.plan.add(stock, item="lamp")
        self.shelf = self.plan.add(shelf, name="a")
        self.articles = self.plan.add(articles, shop="north")
        self.mapped_node = self.plan.add(stock, for_each=["a", "b"], item=self.plan.item)
        self.gross = self.plan.add(gross_plan(), net=self.net)
        self.check = self.plan.add(ask_human("Publish?"), id="check")
        self.selection = self.plan.add(ask_human("Where?", options=["web", "mail"]), id="which")
        age = {"properties": {"age": {"type": "integer"}}}
        self.form = self.plan.add(ask_human("Age?", schema=age), id="form")
        self.text = self.plan.add_agent("Write", prompt="You write.", id="text")
        self.facts = self.plan.add_agent("Find", prompt="You find.", output_schema=age, id="facts")
        self.untyped_node = self.plan.add("unknown")

    def stock(self, item: object = "x", **options: Any) -> object:
        """Add a node with a string argument."""
        return self.plan.add(stock, item=item, **options)

    def order(self, amount: object, **options: Any) -> object:
        """Add a node with an integer argument."""
        return self.plan.add(order, item="x", amount=amount, **options)


Operation = Callable[[SamplePlan], object]

MISSING_PARTS: list[tuple[Operation, str]] = [
    (lambda sample: sample.check["aproved"], "'aproved': it has approved, reason"),
    (lambda sample: sample.selection["selcted"], "'selcted': it has selected"),
    (lambda sample: sample.form["data"]["agee"], "'agee': it has age"),
    (lambda sample: sample.gross["grosss"], "'grosss': it has gross, all, note"),
    (lambda sample: sample.gross["all"][2], "2: it has fewer items"),
    (lambda sample: sample.gross["all"][-3], "-3: it has fewer items"),
    (lambda sample: sample.facts["agee"], "'agee': it has age"),
    (lambda sample: sample.text["x"], "'x': it is str, not dict"),
    (lambda sample: sample.shelf["prise"], "'prise': it has price, prices, size, color"),
    (lambda sample: sample.shelf["price"]["gross"], "'gross': it has net"),
    (lambda sample: sample.shelf["prices"][0]["gross"], "'gross': it has net"),
    (lambda sample: sample.shelf["prices"]["net"], "'net': it is list, not dict (write [0] for the first item)"),
    (lambda sample: sample.shelf["size"][2], "2: it has fewer items"),
    (lambda sample: sample.mapped_node[0]["lefft"], "'lefft': it has name, left, is_new"),
    (lambda sample: sample.mapped_node["left"], "'left': it is list, not dict (write [0] for the first item)"),
    (lambda sample: sample.articles.item["lefft"], "'lefft': it has name, left, is_new"),
    (lambda sample: sample.lamp.error["mesage"], "'mesage': it has code, message, retryable, ref"),
    (lambda sample: Plan.parse(sample.plan.to_dict())["check"]["aproved"], "'aproved': it has approved, reason"),
    (lambda sample: sample.stock("{{stock.result.lefft}} left"), "stock.result has no part 'lefft'"),
    (lambda sample: sample.stock(when="check.result.aproved"), "check.result has no part 'aproved'"),
    (lambda sample: sample.stock(for_each=sample.articles, item="{{item.lefft}}"), "item has no part 'lefft'"),
]


@pytest.mark.parametrize(("operation", "message"), MISSING_PARTS)
def test_missing_part_is_rejected(operation: Operation, message: str) -> None:
    with pytest.raises(PlanInvalid) as caught:
        operation(SamplePlan())
    assert message in str(caught.value)


_TAKES_INT = ", and 'amount' of 'order' takes int"
_LAMP_IS_USED = "<handle stock.result: dict> is used"
INVALID_OPERATIONS: list[tuple[Operation, str]] = [
    (
        lambda sample: sample.plan.add("http_request", ulr="x"),
        "http_request: unknown argument 'ulr' (did you mean 'url'?)",
    ),
    (lambda sample: sample.plan.add("calculator"), "calculator: exactly one of 'expression' or 'query' must be given"),
    (lambda sample: sample.plan.add(order), "order: missing argument 'item', of type str"),
    (lambda sample: sample.order(None), "order: 'amount' takes int, not None"),
    (lambda sample: sample.stock(True), "stock: 'item' takes str, not bool True"),
    (
        lambda sample: sample.plan.add(measure, target={"prices": [{"net": "x"}], "size": [1, "x"]}),
        "'target'.prices[0].net takes float, not str",
    ),
    (
        lambda sample: sample.plan.add(measure, target={"prices": [{}], "size": [1, "x"]}),
        "missing argument 'net' of 'target'.prices[0], of type float",
    ),
    (
        lambda sample: sample.plan.add(measure, target={"prices": [], "size": [1, "x"], "color": "gren"}),
        """'target'.color: "gren" is not one of red, green (did you mean 'green'?)""",
    ),
    (
        lambda sample: sample.stock(sample.lamp["is_new"]),
        "is bool, as the tool 'stock' declares its result, and 'item' of 'stock'",
    ),
    (
        lambda sample: sample.stock(sample.check["approved"]),
        "{{check.result.approved}} is bool, and 'item' of 'stock' takes str",
    ),
    (lambda sample: sample.order(sample.lamp["name"]), "and 'amount' of 'order' takes int"),
    (lambda sample: sample.order(sample.check["reason"]), "is None or str" + _TAKES_INT),
    (lambda sample: sample.order(sample.gross["note"]), "{{Gross.result.note}} is str" + _TAKES_INT),
    (lambda sample: sample.order(sample.selection["selected"][0]), "is str" + _TAKES_INT),
    (lambda sample: sample.order(f"{sample.net} lamps"), "a text with references is str" + _TAKES_INT),
    (lambda sample: sample.order(sample.plan.secret("KEY")), "{{secret.KEY}} is str" + _TAKES_INT),
    (lambda sample: sample.order(sample.lamp["name"], join="any"), "and 'amount' of 'order' takes int"),
    (lambda sample: sample.order(sample.plan.item, for_each=["a"]), "{{item}} is str" + _TAKES_INT),
    (lambda sample: sample.stock(for_each=sample.lamp), "and for_each takes a list"),
    (
        lambda sample: sample.plan.add(measure, target=sample.lamp),
        "{{stock.result}} has no prices, which 'target' of 'measure' needs",
    ),
    (
        lambda sample: sample.plan.add(measure, target=sample.shelf, amounts=sample.shelf["prices"]),
        "{{shelf.result.prices}}[0] is dict, and [0] in 'amounts' of 'measure' is int",
    ),
    (lambda sample: sample.plan.add(gross_plan(), net=sample.articles), "and the sub-plan's input 'net' takes float"),
    (lambda sample: sample.plan.add(gross_plan(), net="x"), "the sub-plan's input 'net' takes float, not str 'x'"),
    (
        lambda sample: sample.stock(when="check.result"),
        "when: check.result is dict, and not a condition (name a part of it",
    ),
    (lambda sample: sample.plan.input("n", type=int, default="x"), "'n' takes int, not str 'x'"),
    (
        lambda sample: sample.plan.input("n", schema={"type": "int"}),
        "n: 'int' is not a JSON type (did you mean 'integer'?)",
    ),
    (lambda sample: sample.stock(join=3), "join: at_least 3 of 0 dependencies can never be done"),
    (lambda sample: sample.order(1, cache="1h"), "results of 'order' are never reused"),
    (lambda sample: sample.plan.add(ask_human("Which?", options=sample.lamp)), "and options takes a list"),
    (lambda sample: sample.plan.add(ask_human("Where?", type="SELECTION")), "a SELECTION needs 'options'"),
    (lambda sample: sample.stock(when=SamplePlan().check["approved"]), "belongs to another plan"),
    (lambda sample: sample.stock(after=[sample.lamp]), "stock: unknown argument 'after' (did you mean 'needs'?)"),
    (lambda sample: sample.order(1, on_error={"value": sample.lamp}), f"{_LAMP_IS_USED} in on_error, which is"),
    (lambda sample: sample.order(1, metadata={"of": sample.lamp}), f"{_LAMP_IS_USED} in metadata, which is"),
    (lambda sample: sample.plan.input("n", default=sample.lamp), f"{_LAMP_IS_USED} in inputs.n.default, which"),
    (lambda sample: sample.lamp.status == "complete", "is never 'complete': it is one of pending"),
    (
        lambda sample: sample.selection["selected"][0] == "wep",
        "is never 'wep': it is one of web, mail (did you mean 'web'?)",
    ),
    (lambda sample: sample.shelf["color"].is_in(["red", "gren"]), "is never 'gren': it is one of red, green"),
]


@pytest.mark.parametrize(("operation", "message"), INVALID_OPERATIONS)
def test_invalid_operation_is_rejected_without_a_change_of_the_plan(operation: Operation, message: str) -> None:
    sample = SamplePlan()
    yaml_before = sample.plan.to_yaml()
    with pytest.raises(PlanInvalid) as caught:
        operation(sample)
    assert message in str(caught.value)
    assert sample.plan.to_yaml() == yaml_before


def test_sub_plan_input_named_like_an_option_is_passed_in_arguments() -> None:
    inner_plan = Plan("Inner")
    inner_plan.output = inner_plan.add(stock, item=inner_plan.input("title", default="x"))
    plan = Plan()
    with pytest.raises(PlanInvalid, match="'title' is an option of the node, and also an argument"):
        plan.add(inner_plan, title="lamp")
    plan.add(inner_plan, title="Lamps", arguments={"title": "lamp"})
    assert plan.check() == []


WRONG_TYPES: list[tuple[Operation, str]] = [
    (lambda sample: sample.articles.size() > "3", "int cannot be compared with str"),
    (lambda sample: sample.lamp["left"] == "3", "int cannot be compared with str"),
    (lambda sample: sample.lamp < 3, "dict cannot be compared with int"),
    (lambda sample: sample.check < sample.lamp, "dict cannot be compared with dict"),
    (lambda sample: sample.lamp["left"].size(), "is int, and size.. takes dict or list or str"),
    (lambda sample: sample.lamp["left"].starts_with("x"), "is int, and startsWith.. takes str"),
    (lambda sample: sample.lamp["name"].matches(3), "3 is int, and matches.. takes str"),  # type: ignore[arg-type]
    (lambda sample: sample.lamp["left"].is_in("x"), "'x' is str, and in takes dict or list"),
    (lambda sample: sample.lamp["left"].is_in(["x"]), "is int, and .*'x'.* has str"),
    (lambda sample: sample.articles.contains("x"), "'x' is str, and <handle articles.result: list> has dict"),
    (lambda sample: sample.lamp.contains(1), "1 is int, and the keys of a dict are str"),
    (lambda sample: sample.lamp["left"] + "x", r"\+ does not take int and str"),
    (lambda sample: sample.lamp["name"] * 2, r"\* does not take str and int"),
    (lambda sample: ~sample.lamp["left"], "is int, and ~ takes bool"),
    (lambda sample: sample.lamp["left"] & sample.lamp["is_new"], "is int, and & takes bool"),
    (
        lambda sample: sample.stock(when=sample.check),
        "is not a condition; name a part of it, such as check.result.approved",
    ),
    (lambda sample: sample.stock(when=sample.lamp["left"] + 1), "is not a condition; compare it"),
    (lambda sample: sample.stock(needs=[sample.lamp["left"]]), "expected a node, not a part of its result"),
    (lambda sample: sample.stock(id=sample.lamp), "id must be a string, not <handle stock.result: dict>"),
    (lambda sample: sample.stock(when=sample.plan.item), "is used in a node without for_each"),
]


@pytest.mark.parametrize(("operation", "message"), WRONG_TYPES)
def test_operator_or_option_rejects_a_wrong_type(operation: Operation, message: str) -> None:
    with pytest.raises((TypeError, PlanInvalid), match=message):
        operation(SamplePlan())


ACCEPTED_OPERATIONS: list[Operation] = [
    lambda sample: sample.plan.add(ask_human("Which?", options=sample.articles), id="choice"),
    lambda sample: sample.order(sample.lamp["left"]),
    lambda sample: sample.order(sample.untyped_node),
    lambda sample: sample.stock(sample.untyped_node["any"][0]["part"], when=sample.untyped_node),
    lambda sample: sample.plan.add(
        measure, target=sample.shelf, amounts=[sample.lamp["left"]], room={"shelf": sample.shelf}
    ),
    lambda sample: sample.plan.add(convert, value=sample.lamp["left"]),
    lambda sample: sample.stock(
        sample.text, when=sample.check["approved"] & (sample.selection["selected"].contains("web"))
    ),
    lambda sample: sample.stock(sample.selection["selected"][0], when=sample.check["reason"] == None),  # noqa: E711 - a condition
    lambda sample: sample.order(sample.form["data"]["age"], when=sample.lamp.status.is_in(["completed", "skipped"])),
    lambda sample: sample.stock(when=(sample.lamp["left"] + 1.5 < sample.net) | sample.shelf["color"].is_in({"red"})),
    lambda sample: sample.order(
        sample.articles.item["left"], for_each=sample.articles, when=sample.articles.item["is_new"]
    ),
    lambda sample: sample.stock("x", when=sample.mapped_node[0]["left"] > sample.mapped_node.size()),
    lambda sample: sample.order(sample.plan.item["n"], for_each=[{"n": 1}, {"n": 2, "m": sample.lamp}]),
    lambda sample: sample.stock(needs=["a_later_node"], when="a_later_node.result > 1"),
]


@pytest.mark.parametrize("operation", ACCEPTED_OPERATIONS)
def test_value_of_the_declared_type_is_accepted(operation: Operation) -> None:
    sample = SamplePlan()
    operation(sample)
    ignored_codes = {"unknown_tool", "unknown_dependency"}
    problems = [problem for problem in sample.plan.check() if problem.code not in ignored_codes]
    assert [problem for problem in problems if "a_later_node" not in problem.message] == []
    assert Plan.parse(sample.plan.to_yaml()) == sample.plan


def test_error_of_an_unsupported_result_type_names_the_tool() -> None:
    from typing import TypedDict as Unsupported  # noqa: PLC0415 - unsupported, and used only here

    class Result(Unsupported):
        left: int

    with pytest.raises(TypeError, match="Tool 'unsupported': the type of the result: Please use `typing_extensions"):

        @tool(name="unsupported")
        def _make_result() -> Result:
            return {"left": 1}
