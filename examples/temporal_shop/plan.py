"""The plan of an order, read once when a worker starts: a workflow must not open files."""

from pathlib import Path

ORDER_PLAN = Path(__file__).with_name("order.yaml").read_text(encoding="utf-8")
