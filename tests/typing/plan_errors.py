"""Mistakes in plans; type checkers report each mistake on its line."""

from dagwright.plans.plan import Plan
from dagwright.tools import declare_activity, tool

declare_activity("ship", "shop", effects="raed")  # E: Argument "effects"


@tool(effects="read")
async def stock(item: str) -> dict[str, int]:
    """Return the stock of an article."""
    return {item: 3}


@tool
def order(item: str, amount: int = 1) -> str:
    """Order an article."""
    return f"{amount} {item}"


plan = Plan("Refill", deadlin="2h")  # E: Unexpected keyword argument "deadlin"
lamps = plan.add(stock, item="lamp", join="al")  # E: Argument "join"
plan.add(3, item="lamp")  # E: Argument 1 to "add"
plan.add(stock, item="lamp", on_error="skp")  # E: Argument "on_error"
plan.call(stock)(itm="lamp")  # E: Unexpected keyword argument "itm"
plan.call(stock)()  # E: Too few arguments
plan.call(order)(item="lamp", amount="many")  # E: Argument "amount"
plan.call(order)(item="lamp", amount=plan.call(order)(item="x").value)  # E: Argument "amount"
plan.call(order, on_error="skp")(item="lamp")  # E: No overload variant of "call"
missing = lamps.resul  # E: has no attribute "resul"
