"""Plans that are built in Python: node documents, and errors that `add` raises."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dagwright.core.errors import PlanInvalid
from dagwright.plans.human_requests import ask_human
from dagwright.plans.plan import Plan
from dagwright.tools import tool
from dagwright.tools.errors import ToolLoadError
from tests.support.shop_tools import articles, fetch, order, stock


def node_documents(plan: Plan) -> list[Any]:
    documents = plan.to_dict()["nodes"]
    assert isinstance(documents, list)
    return documents


def test_example_of_the_documentation_builds_a_valid_plan() -> None:
    plan = Plan("Refill")
    lamps = plan.add(stock, item="lamp")
    plan.add(order, item="lamp", amount=20, when=lamps["left"] < 10)
    assert plan.to_dict() == {
        "plan": 1,
        "title": "Refill",
        "nodes": [
            {"id": "stock", "tool": "stock", "arguments": {"item": "lamp"}},
            {
                "id": "order",
                "tool": "order",
                "arguments": {"item": "lamp", "amount": 20},
                "when": "stock.result.left < 10",
            },
        ],
    }
    assert plan.check() == []
    assert [spec.name for spec in plan.tools] == ["stock", "order"]


def test_node_document_has_every_option() -> None:
    plan = Plan()
    stock_node = plan.add(stock, item="lamp")
    all_articles = plan.add(articles, shop="north")
    plan.add(
        order,
        id="all",
        title="Order all",
        needs=[stock_node, "stock"],
        for_each=all_articles,
        key=all_articles.item["name"],
        max_parallel=2,
        join=1,
        retry={"max_attempts": 2, "first_delay": timedelta(seconds=90)},
        timeout=0.5,
        heartbeat="5s",
        on_error={"value": None},
        approval=ask_human("Order?", assignee="ann", deadline=3600),
        priority=1,
        cache="off",
        metadata={"team": "shop"},
        item=all_articles.item["name"],
        amount=all_articles.index,
    )
    assert node_documents(plan)[-1] == {
        "id": "all",
        "title": "Order all",
        "tool": "order",
        "arguments": {"item": "{{item.name}}", "amount": "{{index}}"},
        "depends_on": ["stock", "stock"],
        "for_each": "{{articles.result}}",
        "key": "{{item.name}}",
        "max_parallel": 2,
        "join": {"at_least": 1},
        "retry": {"max_attempts": 2, "first_delay": "90s"},
        "timeout": "500ms",
        "heartbeat": "5s",
        "on_error": {"value": None},
        "approval": {"prompt": "Order?", "assignee": "ann", "deadline": "1h"},
        "priority": 1,
        "cache": "off",
        "metadata": {"team": "shop"},
    }


def test_inputs_outputs_texts_and_secrets_become_references() -> None:
    plan = Plan(deadline=timedelta(hours=2), on_failure="fail_fast")
    count_input = plan.input("count", type=int | None, prompt="How many?", default=3, schema={"maximum": 9})
    node = plan.add(
        order,
        item=f"{count_input} lamps",
        amount=count_input,
        note=plan.text("{{{{{n}}}}} {m}", n=count_input, m="{{x}}"),
    )
    plan.add("http_request", url="https://shop.example", headers={"Authorization": plan.secret("TOKEN")})
    plan.output = {"ordered": node, "all": node.query("..x"), "first": [node.status, node["lamp"]]}
    assert plan.to_dict()["inputs"] == {
        "count": {
            "type": ["integer", "null"],
            "anyOf": [{"type": "integer"}, {"type": "null"}],
            "prompt": "How many?",
            "default": 3,
            "maximum": 9,
        }
    }
    assert node_documents(plan)[0]["arguments"] == {
        "item": "{{PLACEHOLDER_count}} lamps",
        "amount": "{{PLACEHOLDER_count}}",
        "note": r"\{{{{PLACEHOLDER_count}}}} \{{x}}",
    }
    assert node_documents(plan)[1]["arguments"]["headers"] == {"Authorization": "{{secret.TOKEN}}"}
    assert plan.output == {
        "ordered": "{{order.result}}",
        "all": "{{order.result..x}}",
        "first": ["{{order.status}}", "{{order.result.lamp}}"],
    }
    assert plan.check() == []


def test_human_requests_agents_and_sub_plans_become_nodes(tmp_path: Path) -> None:
    inner_plan = Plan("Inner")
    inner_plan.output = inner_plan.add(stock, item=inner_plan.input("item"))
    plan = Plan()
    selection = plan.add(ask_human("Which?", options=["a", "b"], allow_text=True), id="which")
    sub_plan = plan.add(inner_plan, item=selection["selected"][0])
    agent = plan.add_agent(f"Describe {sub_plan}", prompt="Write well.", tools=[articles, "calculator"], max_turns=3)
    plan.add_agent("Check it", agent="critic", needs=[agent])
    file = tmp_path / "stock_plan.yaml"
    file.write_text(inner_plan.to_yaml(), encoding="utf-8")
    plan.add(file, item="desk")
    assert [{key: node[key] for key in node.keys() - {"arguments"}} for node in node_documents(plan)] == [
        {"id": "which", "human": {"type": "SELECTION", "prompt": "Which?", "options": ["a", "b"], "allow_text": True}},
        {"id": "Inner", "plan": inner_plan.to_dict()},
        {
            "id": "agent",
            "agent": {"prompt": "Write well.", "tools": ["articles", "calculator"], "max_turns": 3},
            "objective": "Describe {{Inner.result}}",
        },
        {"id": "critic", "agent": "critic", "objective": "Check it", "depends_on": ["agent"]},
        {"id": "stock_plan", "plan": inner_plan.to_dict()},
    ]
    assert [spec.name for spec in plan.tools] == ["stock", "articles"]


def test_call_and_add_build_the_same_node() -> None:
    plan, plan_with_call = Plan(), Plan()
    for target in (plan, plan_with_call):
        target.add(stock, item="lamp")
    plan.add(order, id="o", when=plan["stock"]["is_new"], item="lamp", amount=plan["stock"]["left"])
    lamps = plan_with_call["stock"]
    plan_with_call.call(order, id="o", when=lamps["is_new"])("lamp", amount=lamps["left"].value)
    assert plan == plan_with_call
    with pytest.raises(TypeError, match="the argument 'item' is given twice"):
        plan.call(order)("lamp", item="desk", amount=1)  # type: ignore[misc] # the error under test


# The test compares conditions without parentheses at their start and end.
CONDITIONS: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda lamps: (lamps["left"] < 10) & (lamps["name"] != "x"),
        '(stock.result.left < 10) && (stock.result.name != "x")',
    ),
    (lambda lamps: ~(lamps["left"] >= 1.5) | lamps["is_new"], "!(stock.result.left >= 1.5) || stock.result.is_new"),
    (lambda lamps: lamps["left"].is_in([1, None, True]), "stock.result.left in [1, null, true]"),
    (lambda lamps: lamps["left"] + 1 < 10, "(stock.result.left + 1) < 10"),
    (lambda lamps: 10 - lamps["left"] == -1, "(10 - stock.result.left) == -1"),
    (lambda lamps: lamps["name"].starts_with('"a\n'), 'stock.result.name.startsWith("\\"a\\n")'),
    (lambda lamps: lamps["name"].size() > 2, "size(stock.result.name) > 2"),
    (lambda lamps: lamps["name"].exists(), "has(stock.result.name)"),
    (lambda lamps: lamps.status == "completed", 'stock.status == "completed"'),
]


@pytest.mark.parametrize(("make_condition", "text"), CONDITIONS)
def test_operators_on_handles_build_conditions(make_condition: Callable[[Any], Any], text: str) -> None:
    plan = Plan()
    plan.add(order, item="lamp", amount=1, when=make_condition(plan.add(stock, item="lamp")))
    assert node_documents(plan)[-1]["when"].strip("()") == text.strip("()")
    assert plan.check() == []


def test_condition_with_unusual_names_is_valid() -> None:
    plan = Plan()
    node = plan.add("any", id='odd "id"')
    plan.add(stock, item="lamp", when=node["in"][0]["odd key"] == plan.input("net", type=dict[str, int])["a"])
    condition = node_documents(plan)[-1]["when"]
    assert condition == 'nodes["odd \\"id\\""].result["in"][0]["odd key"] == inputs.net.a'
    assert [problem for problem in plan.check() if "when" in problem.message] == []


def rejection_of(operation: Callable[[Plan], object]) -> tuple[str, str, str | None]:
    plan = Plan()
    plan.add(stock, item="lamp")
    plan.add(articles, shop="north")
    yaml_before = plan.to_yaml()
    with pytest.raises(PlanInvalid) as caught:
        operation(plan)
    assert plan.to_yaml() == yaml_before
    [problem] = caught.value.problems
    return problem.pointer, problem.message, problem.hint


_LAMP = {"item": "lamp"}
_NOT_A_DURATION = "is not a duration; write a number and a unit, such as 500ms, 30s, 5m, 2h or 7d"
_INVALID_CHOICE = "on_error: expected block, skip, ask, replan or {value: …}, not 'skp'"
_RETRY = {"max_attempts": 2, "max_delay": "1 hour"}


@pytest.mark.parametrize(
    ("target", "fields", "pointer", "message", "hint"),
    [
        (stock, {"itm": "lamp"}, "/arguments/itm", "stock: unknown argument 'itm'", "did you mean 'item'?"),
        (order, _LAMP, "/arguments", "order: missing argument 'amount', of type int", None),
        (order, {"amount": "3", **_LAMP}, "/arguments/amount", "order: 'amount' takes int, not str '3'", None),
        (stock, {"on_error": "skp", **_LAMP}, "/on_error", _INVALID_CHOICE, "did you mean 'skip'?"),
        (stock, {"timeout": "soon", **_LAMP}, "/timeout", f"timeout: 'soon' {_NOT_A_DURATION}", None),
        (stock, {"retry": _RETRY, **_LAMP}, "/retry/max_delay", f"retry.max_delay: '1 hour' {_NOT_A_DURATION}", None),
        (stock, {"cache": "1 hour", **_LAMP}, "/cache/ttl", f"cache.ttl: '1 hour' {_NOT_A_DURATION}", None),
        (stock, {"id": "stock", **_LAMP}, "/id", "the id 'stock' is already used", None),
    ],
)
def test_invalid_field_is_rejected_without_a_change_of_the_plan(
    target: Any, fields: dict[str, Any], pointer: str, message: str, hint: str | None
) -> None:
    assert rejection_of(lambda plan: plan.add(target, **fields)) == (f"/nodes/2{pointer}", message, hint)


def _type_hint(tool_name: str) -> str:
    return (
        "refer to a part of the result that has this type, or convert the result with a tool in between; "
        f"if {tool_name!r} returns another type, correct its return annotation"
    )


_LIST_MESSAGE = "{{articles.result}} is list, as the tool 'articles' declares its result"
_DICT_MESSAGE = "{{stock.result}} is dict, as the tool 'stock' declares its result"
_STOCK_PARTS_MESSAGE = "<handle stock.result: dict> has no part 'lefft': it has name, left, is_new"
_INT_MESSAGE = "<handle stock.result.left: int> has no part 'x': it is int, not dict"
REJECTED_OPERATIONS: list[tuple[Callable[[Plan], object], tuple[str, str, str | None]]] = [
    (
        lambda plan: plan.add(stock, item="lamp", on_erorr="skip"),
        ("/nodes/2/arguments/on_erorr", "stock: unknown argument 'on_erorr'", "did you mean 'on_error'?"),
    ),
    (
        lambda plan: plan.add(order, item="lamp", amount=plan["articles"]),
        ("/nodes/2/arguments/amount", f"{_LIST_MESSAGE}, and 'amount' of 'order' takes int", _type_hint("articles")),
    ),
    (lambda _: ask_human("Order?", deadline="soon"), ("/deadline", f"deadline: 'soon' {_NOT_A_DURATION}", None)),
    (lambda _: Plan(deadline="soon"), ("/deadline", f"deadline: 'soon' {_NOT_A_DURATION}", None)),
    (lambda plan: plan.secret("a b"), ("", "'a b': the name of a secret has letters, digits and _", None)),
    (
        lambda plan: plan.add(stock, item=plan["articles"].item["name"]),
        (
            "/nodes/2/arguments/item",
            "<handle item.name: str> is used in a node without for_each",
            "give the list <handle articles.result: list> to for_each=",
        ),
    ),
    (
        lambda plan: plan.add(stock, for_each=plan["stock"], item="lamp"),
        ("/nodes/2/for_each", f"{_DICT_MESSAGE}, and for_each takes a list", _type_hint("stock")),
    ),
    (
        lambda plan: plan.add(stock, item=Plan().add(stock, item="lamp")["name"]),
        (
            "/nodes/2/arguments/item",
            "<handle stock.result.name: str> belongs to another plan",
            "add that plan as a node, and give its values as arguments",
        ),
    ),
    (lambda plan: plan["stock"]["lefft"], ("", _STOCK_PARTS_MESSAGE, "did you mean 'left'?")),
    (lambda plan: plan["stock"]["left"]["x"], ("", _INT_MESSAGE, None)),
    (lambda plan: plan["stok"], ("", "the plan has no node 'stok'", "did you mean 'stock'?")),
    (
        lambda plan: plan.add(fetch, url="x", timeout=3),
        (
            "/nodes",
            "'timeout' is an option of the node, and also an argument",
            "give the argument in arguments={'timeout': ...}",
        ),
    ),
    (
        lambda plan: plan.add(stock, item={object}),
        (
            "/nodes/2/arguments/item",
            "{<class 'object'>} of type set is not a JSON value",
            "give a JSON value or a handle",
        ),
    ),
]


@pytest.mark.parametrize(("operation", "expected"), REJECTED_OPERATIONS)
def test_invalid_node_is_rejected_without_a_change_of_the_plan(
    operation: Callable[[Plan], object], expected: tuple[str, str, str | None]
) -> None:
    assert rejection_of(operation) == expected


def test_invalid_input_of_a_sub_plan_is_rejected() -> None:
    inner_plan = Plan("Inner")
    inner_plan.add(stock, item=inner_plan.input("item"))
    for operation, message in (
        (lambda plan: plan.add(inner_plan, itm="x"), "the sub-plan has no input 'itm'"),
        (lambda plan: plan.add(inner_plan), "the sub-plan needs the input 'item'"),
        (lambda plan: plan.add(inner_plan, item=3), "the sub-plan's input 'item' takes str, not int 3"),
    ):
        assert rejection_of(operation)[1] == message


MISUSES: list[tuple[Callable[[Any], object], str]] = [
    (bool, "combine conditions with & | ~"),
    (list, "give it to for_each="),
    (len, "write .size()"),
    (lambda handle: "x" in handle, r"write .contains\(value\)"),
    (lambda handle: f"{handle:>10}", "cannot be formatted"),
    (lambda handle: handle[1.5], "expected a key or an index"),
    (lambda handle: (handle["left"] < 3) & 4, "bind tighter"),
    (lambda handle: handle["left"] < object(), "a condition cannot contain"),
    (lambda handle: handle["left"] < float("inf"), "a condition cannot contain"),
    (
        lambda handle: Plan().add(stock, item="x", when=handle),
        "is not a condition; name a part of it, such as stock.result.is_new",
    ),
    (lambda handle: Plan().add(stock, item="x", needs=handle), r"expected a list of nodes, such as needs=\[stock\]"),
    (lambda handle: Plan().add(len), "decorate the function with @tool"),
]


@pytest.mark.parametrize(("operation", "message"), MISUSES)
def test_misuse_of_a_handle_is_a_type_error(operation: Callable[[Any], object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        operation(Plan().add(stock, item="lamp"))


def test_two_tools_with_the_same_name_are_rejected() -> None:
    plan = Plan(tools=[stock])

    @tool(name="stock")
    def other_stock(item: str) -> str:
        return item

    with pytest.raises(ToolLoadError, match="two tools of the plan are called 'stock'"):
        plan.add(other_stock, item="x")
    with pytest.raises(ToolLoadError, match="two of the tools have this name"):
        plan.check(tools=[stock, other_stock])


def test_plan_in_the_dialect_llmcompiler_is_unchanged_and_read_only() -> None:
    text = '1. calculator("1 + 1")\n2. join()\n'
    plan = Plan.parse(text)
    assert (plan.dialect, plan.to_yaml(), plan.document) == ("llmcompiler", text, text)
    with pytest.raises(PlanInvalid, match="cannot be changed in Python"):
        plan.add(stock, item="lamp")
    with pytest.raises(TypeError, match="is not an object"):
        plan.to_dict()


def test_text_without_a_plan_is_rejected() -> None:
    with pytest.raises(PlanInvalid):
        Plan.parse("just words: 1")
    with pytest.raises(PlanInvalid, match=r"Plan\.load"):
        Plan.parse("refill.yaml")


def test_check_accepts_tools_from_files(tmp_path: Path) -> None:
    file = tmp_path / "shop_tools.py"
    code = 'from dagwright import tool\n\n@tool(effects="read")\ndef shelf(item: str) -> int:\n    return 1\n'
    file.write_text(code)
    plan = Plan()
    plan.add("shelf", item="lamp")
    assert [problem.code for problem in plan.check()] == ["unknown_tool"]
    assert plan.check(tools=[file]) == plan.check(tools=[str(file)]) == plan.check(tools=[stock, file]) == []
    with pytest.raises(ToolLoadError, match="There is no module there_is_none"):
        plan.check(tools=["there_is_none"])
