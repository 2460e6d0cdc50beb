"""A plan of two tools: `python examples/python/hello.py`."""

from dagwright import Effects, Plan, run, tool


@tool(effects=Effects.READ)
def stock(item: str) -> dict[str, int]:
    """Return how many pieces of an article are left."""
    return {"left": {"lamp": 4, "desk": 31}.get(item, 0)}


@tool(effects=Effects.WRITE)
def order(item: str, amount: int) -> str:
    """Order an article."""
    return f"ordered {amount} x {item}"


plan = Plan("Refill")
lamps = plan.add(stock, item="lamp")
refill = plan.add(order, item="lamp", amount=20, when=lamps["left"] < 10)
plan.output = {"lamps": lamps["left"], "order": refill}

if __name__ == "__main__":
    result = run(plan)
    print(result.output)
    for node in result.nodes.values():
        print(f"{node.node_id}: {node.status.value}")
