"""The tools of a lamp shop. The file shop.log lists the actions of the shop."""

import time
from pathlib import Path

from dagwright import context, tool

PRICES = {"ceiling": 60.0, "desk": 12.5, "floor": 40.0, "wall": 25.0}
LOG = Path("shop.log")


@tool(effects="read")
def add_up(lamps: list[str]) -> float:
    """Return the price of lamps with 19 % tax."""
    missing = [lamp for lamp in lamps if lamp not in PRICES]
    if missing:
        raise ValueError(f"not in the catalogue: {', '.join(missing)}")
    return round(sum(PRICES[lamp] for lamp in lamps) * 1.19, 2)


@tool(effects="idempotent")
def pack(lamp: str) -> str:
    """Pack a lamp, which takes two seconds."""
    time.sleep(2)
    write_once(f"packed a {lamp} lamp")
    return f"{lamp} lamp"


@tool(effects="idempotent")
def ship(parcels: list[str], total: float) -> str:
    """Ship parcels."""
    write_once(f"shipped {len(parcels)} parcels")
    return f"{', '.join(parcels)}: {total} to pay"


def write_once(entry: str) -> None:
    """Write an entry to the log, unless an earlier call with the same key has written it."""
    line = f"{entry} ({context().idempotency_key})\n"
    if not LOG.exists() or line not in LOG.read_text():
        with LOG.open("a") as log:
            log.write(line)
