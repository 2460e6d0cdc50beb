"""Plans that type checkers accept."""

from datetime import timedelta
from typing import Any, assert_type

from dagwright.plans.expressions import Condition
from dagwright.plans.handles import Handle, NodeHandle
from dagwright.plans.human_requests import ask_human
from dagwright.plans.plan import Plan
from dagwright.tools import tool


@tool(effects="read")
async def stock(item: str) -> dict[str, int]:
    """Return the stock of an article."""
    return {item: 3}


@tool
def order(item: str, amount: int = 1) -> str:
    """Order an article."""
    return f"{amount} {item}"


plan = Plan("Refill", deadline=timedelta(hours=2))
lamps = plan.add(stock, item="lamp", retry=3, timeout="30s")
assert_type(lamps, NodeHandle[Any])
assert_type(lamps["left"], Handle[Any])
assert_type((lamps["left"] < 10) & ~lamps["is_new"], Condition)
plan.add(order, item="lamp", amount=lamps["left"], when=lamps["left"] < 10)
plan.add(order, item="lamp", for_each=[1, 2], amount=plan.item, needs=[lamps, "stock"])
plan.add(ask_human("Order?"), on_error={"value": None})

stock_of_lamps = plan.call(stock, when="1 < 2")(item="lamp")
assert_type(stock_of_lamps, NodeHandle[dict[str, int]])
assert_type(stock_of_lamps.value, dict[str, int])
note = plan.call(order)(item="lamp", amount=stock_of_lamps["lamp"].value)
assert_type(note.value, str)
plan.call(order, needs=[stock_of_lamps])(item=note.value)
plan.output = {"note": note}
