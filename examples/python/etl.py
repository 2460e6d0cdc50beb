"""Extract orders from an HTTP API, clean them, and load them into SQLite after a person has approved the load.

    python examples/python/etl.py [--api URL] [--database FILE] [--id RUN_ID] [--yes]

Without `--api`, this program starts `orders_api.py`. After a crash, start this program again with the same `--id` and
`--api`: completed nodes are not repeated.
"""

import argparse
import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from typing_extensions import TypedDict

from dagwright import Client, Effects, Plan, RetryLater, Worker, ask_human, tool


class Order(TypedDict):
    """An order that can be loaded."""

    id: str
    customer: str
    cents: int


class Summary(TypedDict):
    """The orders to load, their total amount, and the number of orders without an amount."""

    orders: list[Order]
    total: float
    missing_amount_count: int


def _get(url: str) -> Any:
    response = httpx.get(url, timeout=10)
    if response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        raise RetryLater(f"{url} is busy", after=timedelta(seconds=float(response.headers.get("Retry-After", "1"))))
    return response.raise_for_status().json()


@tool(effects=Effects.READ)
def list_pages(api: str) -> list[int]:
    """Return the numbers of the pages."""
    pages: list[int] = _get(f"{api}/pages")["pages"]
    return pages


@tool(effects=Effects.READ, max_parallel=2)
def fetch_page(api: str, page: int) -> list[dict[str, Any]]:
    """Return the orders of a page as the API returns them."""
    orders: list[dict[str, Any]] = _get(f"{api}/orders?page={page}")["orders"]
    return orders


@tool(effects=Effects.PURE)
def clean(pages: list[list[dict[str, Any]]]) -> Summary:
    """Keep the orders that have an amount."""
    all_orders = [order for page in pages for order in page]
    orders = [
        Order(id=order["id"], customer=order["customer"], cents=order["cents"])
        for order in all_orders
        if isinstance(order["cents"], int)
    ]
    return {
        "orders": orders,
        "total": sum(order["cents"] for order in orders) / 100,
        "missing_amount_count": len(all_orders) - len(orders),
    }


@tool(effects=Effects.IDEMPOTENT)
def load(database: str, orders: list[Order]) -> int:
    """Write orders to SQLite; an order that is written again replaces its row."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("create table if not exists orders (id text primary key, customer text, cents integer)")
        connection.executemany("insert or replace into orders values (:id, :customer, :cents)", orders)
        count: int = connection.execute("select count(*) from orders").fetchone()[0]
    return count


def build_plan() -> Plan:
    """Return the plan; `api` and `database` are its inputs."""
    plan = Plan("Load orders")
    api, database = plan.input("api", type=str), plan.input("database", type=str)
    pages = plan.add(list_pages, api=api)
    order_pages = plan.add(
        fetch_page, for_each=pages, api=api, page=pages.item, retry={"max_attempts": 5, "first_delay": "200ms"}
    )
    summary = plan.add(clean, pages=order_pages)
    question = plan.text(
        "Load orders of {total} in total? {missing_amount_count} have no amount.",
        total=summary["total"],
        missing_amount_count=summary["missing_amount_count"],
    )
    approval = plan.add(ask_human(question, assignee="ops"), id="approve")
    plan.output = plan.add(load, database=database, orders=summary["orders"], when=approval["approved"])
    return plan


async def main(api: str, database: Path, *, run_id: str | None, auto_approve: bool) -> None:
    """Run the plan and answer its request."""
    async with Client.connect() as client, Worker(client, tools=[list_pages, fetch_page, clean, load]):
        run = await client.start(build_plan(), inputs={"api": api, "database": str(database.resolve())}, run_id=run_id)
        async for event in run.events():
            print(event.type, getattr(event, "node_id", ""), flush=True)
            if event.type == "feedback.requested" and event.is_open:
                await run.feedback(event.node_id, approved=auto_approve or _confirm(event.request.prompt), by="ops")
        row_count = (await run.result()).output
        print(f"{row_count} rows in {database}" if row_count is not None else "rejected: nothing is loaded")


def _confirm(prompt: str) -> bool:
    return input(f"{prompt} [y/N] ").strip().lower() == "y"


@contextmanager
def serve_orders_api() -> Iterator[str]:
    """Serve `orders_api.py` inside the block, and yield its address."""
    command = [sys.executable, str(Path(__file__).with_name("orders_api.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def run_example(arguments: Sequence[str] | None = None) -> None:
    """Run the example with command line arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--api", help="address of the API; by default the example starts one")
    parser.add_argument("--database", type=Path, default=Path("orders.db"))
    parser.add_argument("--id", help="ID of the run")
    parser.add_argument("--yes", action="store_true", help="approve without a question")
    options = parser.parse_args(arguments)
    if options.api:
        asyncio.run(main(options.api, options.database, run_id=options.id, auto_approve=options.yes))
        return
    with serve_orders_api() as api:
        asyncio.run(main(api, options.database, run_id=options.id, auto_approve=options.yes))


if __name__ == "__main__":
    run_example()
