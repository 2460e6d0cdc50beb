"""Types of the values of a plan built in Python: wrong parts and types are rejected at the line that uses them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict  # as for tools: pydantic needs it before Python 3.12

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
async def measure(of: Shelf, amounts: list[int] | None = None, room: Room | None = None) -> float:
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


class Built:
    """A plan with one node of each kind."""

    def __init__(self) -> None:
        self.plan = Plan()
        self.net = self.plan.input("net", type=float)
        self.lamp = self.plan.add(stock, item="lamp")
        self.shelf = self.plan.add(shelf, name="a")
        self.articles = self.plan.add(articles, shop="north")
        self.mapped = self.plan.add(stock, for_each=["a", "b"], item=self.plan.item)
        self.gross = self.plan.add(gross_plan(), net=self.net)
        self.check = self.plan.add(ask_human("Publish?"), id="check")
        self.which = self.plan.add(ask_human("Where?", options=["web", "mail"]), id="which")
        age = {"properties": {"age": {"type": "integer"}}}
        self.form = self.plan.add(ask_human("Age?", schema=age), id="form")
        self.text = self.plan.add_agent("Write", prompt="You write.", id="text")
        self.facts = self.plan.add_agent("Find", prompt="You find.", output_schema=age, id="facts")
        self.untyped = self.plan.add("unknown")

    def stock(self, item: object = "x", **options: Any) -> object:
        """Add a node with a string argument."""
        return self.plan.add(stock, item=item, **options)

    def order(self, amount: object, **options: Any) -> object:
        """Add a node with an integer argument."""
        return self.plan.add(order, item="x", amount=amount, **options)


Act = Callable[[Built], object]

PARTS: list[tuple[Act, str]] = [
    (lambda at: at.check["aproved"], "'aproved': it has approved, reason"),
    (lambda at: at.which["selcted"], "'selcted': it has selected"),
    (lambda at: at.form["data"]["agee"], "'agee': it has age"),
    (lambda at: at.gross["grosss"], "'grosss': it has gross, all, note"),
    (lambda at: at.gross["all"][2], "2: it has fewer items"),
    (lambda at: at.gross["all"][-3], "-3: it has fewer items"),
    (lambda at: at.facts["agee"], "'agee': it has age"),
    (lambda at: at.text["x"], "'x': it is str, not dict"),
    (lambda at: at.shelf["prise"], "'prise': it has price, prices, size, color"),
    (lambda at: at.shelf["price"]["gross"], "'gross': it has net"),
    (lambda at: at.shelf["prices"][0]["gross"], "'gross': it has net"),
    (lambda at: at.shelf["prices"]["net"], "'net': it is list, not dict (write [0] for the first item)"),
    (lambda at: at.shelf["size"][2], "2: it has fewer items"),
    (lambda at: at.mapped[0]["lefft"], "'lefft': it has name, left, is_new"),
    (lambda at: at.mapped["left"], "'left': it is list, not dict (write [0] for the first item)"),
    (lambda at: at.articles.item["lefft"], "'lefft': it has name, left, is_new"),
    (lambda at: at.lamp.error["mesage"], "'mesage': it has code, message, retryable, ref"),
    (lambda at: Plan.parse(at.plan.to_dict())["check"]["aproved"], "'aproved': it has approved, reason"),
    (lambda at: at.stock("{{stock.result.lefft}} left"), "stock.result has no part 'lefft'"),
    (lambda at: at.stock(when="check.result.aproved"), "check.result has no part 'aproved'"),
    (lambda at: at.stock(for_each=at.articles, item="{{item.lefft}}"), "item has no part 'lefft'"),
]


@pytest.mark.parametrize(("act", "message"), PARTS)
def test_missing_part_is_rejected(act: Act, message: str) -> None:
    with pytest.raises(PlanInvalid) as caught:
        act(Built())
    assert message in str(caught.value)


TYPES: list[tuple[Act, str]] = [
    (lambda at: at.plan.add("http_request", ulr="x"), "http_request: unknown argument 'ulr' (did you mean 'url'?)"),
    (lambda at: at.plan.add("calculator"), "calculator: exactly one of 'expression' or 'query' must be given"),
    (lambda at: at.plan.add(order), "order: missing argument 'item', of type str"),
    (lambda at: at.order("3"), "order: 'amount' takes int, not str '3'"),
    (lambda at: at.order(None), "order: 'amount' takes int, not None"),
    (lambda at: at.stock(True), "stock: 'item' takes str, not bool True"),
    (
        lambda at: at.plan.add(measure, of={"prices": [{"net": "x"}], "size": [1, "x"]}),
        "'of'.prices[0].net takes float, not str",
    ),
    (
        lambda at: at.plan.add(measure, of={"prices": [{}], "size": [1, "x"]}),
        "missing argument 'net' of 'of'.prices[0], of type float",
    ),
    (
        lambda at: at.plan.add(measure, of={"prices": [], "size": [1, "x"], "color": "gren"}),
        """'of'.color: "gren" is not one of red, green (did you mean 'green'?)""",
    ),
    (lambda at: at.stock(at.lamp["is_new"]), "is bool, as the tool 'stock' declares its result, and 'item' of 'stock'"),
    (lambda at: at.stock(at.check["approved"]), "{{check.result.approved}} is bool, and 'item' of 'stock' takes str"),
    (lambda at: at.order(at.lamp["name"]), "and 'amount' of 'order' takes int"),
    (lambda at: at.order(at.check["reason"]), "is None or str, and 'amount' of 'order' takes int"),
    (lambda at: at.order(at.gross["note"]), "{{Gross.result.note}} is str, and 'amount' of 'order' takes int"),
    (lambda at: at.order(at.which["selected"][0]), "is str, and 'amount' of 'order' takes int"),
    (lambda at: at.order(f"{at.net} lamps"), "a text with references is str, and 'amount' of 'order' takes int"),
    (lambda at: at.order(at.plan.secret("KEY")), "{{secret.KEY}} is str, and 'amount' of 'order' takes int"),
    (lambda at: at.order(at.lamp["name"], join="any"), "and 'amount' of 'order' takes int"),
    (lambda at: at.order(at.plan.item, for_each=["a"]), "{{item}} is str, and 'amount' of 'order' takes int"),
    (lambda at: at.stock(for_each=at.lamp), "and for_each takes a list"),
    (lambda at: at.plan.add(measure, of=at.lamp), "{{stock.result}} has no prices, which 'of' of 'measure' needs"),
    (
        lambda at: at.plan.add(measure, of=at.shelf, amounts=at.shelf["prices"]),
        "{{shelf.result.prices}}[0] is dict, and [0] in 'amounts' of 'measure' is int",
    ),
    (lambda at: at.plan.add(gross_plan(), net=at.articles), "and the sub-plan's input 'net' takes float"),
    (lambda at: at.plan.add(gross_plan(), net="x"), "the sub-plan's input 'net' takes float, not str 'x'"),
    (lambda at: at.stock(when="check.result"), "when: check.result is dict, and not a condition (name a part of it"),
    (lambda at: at.plan.input("n", type=int, default="x"), "'n' takes int, not str 'x'"),
    (lambda at: at.plan.input("n", schema={"type": "int"}), "n: 'int' is not a JSON type (did you mean 'integer'?)"),
    (lambda at: at.stock(join=3), "join: at_least 3 of 0 dependencies can never be done"),
    (lambda at: at.order(1, cache="1h"), "results of 'order' are never reused"),
    (lambda at: at.plan.add(ask_human("Which?", options=at.lamp)), "and options takes a list"),
    (lambda at: at.plan.add(ask_human("Where?", type="SELECTION")), "a SELECTION needs 'options'"),
    (lambda at: at.stock(when=Built().check["approved"]), "belongs to another plan"),
    (lambda at: at.stock(after=[at.lamp]), "stock: unknown argument 'after' (did you mean 'needs'?)"),
    (lambda at: at.order(1, on_error={"value": at.lamp}), "<handle stock.result: dict> is used in on_error, which is"),
    (lambda at: at.order(1, metadata={"of": at.lamp}), "<handle stock.result: dict> is used in metadata, which is"),
    (lambda at: at.plan.input("n", default=at.lamp), "<handle stock.result: dict> is used in inputs.n.default, which"),
    (lambda at: at.lamp.status == "complete", "is never 'complete': it is one of pending"),
    (lambda at: at.which["selected"][0] == "wep", "is never 'wep': it is one of web, mail (did you mean 'web'?)"),
    (lambda at: at.shelf["color"].is_in(["red", "gren"]), "is never 'gren': it is one of red, green"),
]


@pytest.mark.parametrize(("act", "message"), TYPES)
def test_wrong_type_is_rejected(act: Act, message: str) -> None:
    built = Built()
    before = built.plan.to_yaml()
    with pytest.raises(PlanInvalid) as caught:
        act(built)
    assert message in str(caught.value)
    assert built.plan.to_yaml() == before


def test_option_that_is_also_an_input_of_the_sub_plan() -> None:
    inner = Plan("Inner")
    inner.output = inner.add(stock, item=inner.input("title", default="x"))
    plan = Plan()
    with pytest.raises(PlanInvalid, match="'title' is an option of the node, and also an argument"):
        plan.add(inner, title="lamp")
    plan.add(inner, title="Lamps", arguments={"title": "lamp"})
    assert plan.check() == []


OPERATORS: list[tuple[Act, str]] = [
    (lambda at: at.articles.size() > "3", "int cannot be compared with str"),
    (lambda at: at.lamp["left"] == "3", "int cannot be compared with str"),
    (lambda at: at.lamp < 3, "dict cannot be compared with int"),
    (lambda at: at.check < at.lamp, "dict cannot be compared with dict"),
    (lambda at: at.lamp["left"].size(), "is int, and size.. takes dict or list or str"),
    (lambda at: at.lamp["left"].starts_with("x"), "is int, and startsWith.. takes str"),
    (lambda at: at.lamp["name"].matches(3), "3 is int, and matches.. takes str"),  # type: ignore[arg-type]
    (lambda at: at.lamp["left"].is_in("x"), "'x' is str, and in takes dict or list"),
    (lambda at: at.lamp["left"].is_in(["x"]), "is int, and .*'x'.* has str"),
    (lambda at: at.articles.contains("x"), "'x' is str, and <handle articles.result: list> has dict"),
    (lambda at: at.lamp.contains(1), "1 is int, and a key of a dict takes str"),
    (lambda at: at.lamp["left"] + "x", r"\+ does not take int and str"),
    (lambda at: at.lamp["name"] * 2, r"\* does not take str and int"),
    (lambda at: ~at.lamp["left"], "is int, and ~ takes bool"),
    (lambda at: at.lamp["left"] & at.lamp["is_new"], "is int, and & takes bool"),
    (lambda at: at.stock(when=at.check), "is not a condition; name a part of it, such as check.result.approved"),
    (lambda at: at.stock(when=at.lamp["left"] + 1), "is not a condition; compare it"),
    (lambda at: at.stock(needs=[at.lamp["left"]]), "expected a node, not a part of its result"),
    (lambda at: at.stock(id=at.lamp), "id must be a string, not <handle stock.result: dict>"),
    (lambda at: at.stock(when=at.plan.item), "is used in a node without for_each"),
]


@pytest.mark.parametrize(("act", "message"), OPERATORS)
def test_operator_rejects_a_wrong_type(act: Act, message: str) -> None:
    with pytest.raises((TypeError, PlanInvalid), match=message):
        act(Built())


ACCEPTED: list[Act] = [
    lambda at: at.plan.add(ask_human("Which?", options=at.articles), id="choice"),
    lambda at: at.order(at.lamp["left"]),
    lambda at: at.order(at.untyped),
    lambda at: at.stock(at.untyped["any"][0]["part"], when=at.untyped),
    lambda at: at.plan.add(measure, of=at.shelf, amounts=[at.lamp["left"]], room={"shelf": at.shelf}),
    lambda at: at.plan.add(convert, value=at.lamp["left"]),
    lambda at: at.stock(at.text, when=at.check["approved"] & (at.which["selected"].contains("web"))),
    lambda at: at.stock(at.which["selected"][0], when=at.check["reason"] == None),  # noqa: E711 - a condition
    lambda at: at.order(at.form["data"]["age"], when=at.lamp.status.is_in(["completed", "skipped"])),
    lambda at: at.stock(when=(at.lamp["left"] + 1.5 < at.net) | at.shelf["color"].is_in({"red"})),
    lambda at: at.order(at.articles.item["left"], for_each=at.articles, when=at.articles.item["is_new"]),
    lambda at: at.stock("x", when=at.mapped[0]["left"] > at.mapped.size()),
    lambda at: at.order(at.plan.item["n"], for_each=[{"n": 1}, {"n": 2, "m": at.lamp}]),
    lambda at: at.stock(needs=["a_later_node"], when="a_later_node.result > 1"),
]


@pytest.mark.parametrize("act", ACCEPTED)
def test_right_type_is_accepted(act: Act) -> None:
    built = Built()
    act(built)
    later = {"unknown_tool", "unknown_dependency"}
    assert [each for each in built.plan.check() if each.code not in later and "a_later_node" not in each.message] == []
    assert Plan.parse(built.plan.to_yaml()) == built.plan


def test_unsupported_type_of_a_result_names_the_tool() -> None:
    from typing import TypedDict as Unsupported  # noqa: PLC0415 - shadows the supported class

    class Result(Unsupported):
        left: int

    with pytest.raises(TypeError, match="Tool 'made': the type of the result: Please use `typing_extensions"):

        @tool(name="made")
        def _make_result() -> Result:
            return {"left": 1}
