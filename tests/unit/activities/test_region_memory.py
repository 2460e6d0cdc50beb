"""The regions that a process keeps between slices: few, and not for ever."""

from types import SimpleNamespace
from typing import cast

import pytest

from activities import inner_regions
from activities.inner_regions import InnerRegion, RegionMemory
from dagwright.contracts.inner_slices import InnerSlice
from tests.support.eventually import eventually


def region_of(count: int) -> InnerRegion:
    scheduler = SimpleNamespace(is_finished=False, ended=[])
    region = SimpleNamespace(inside=SimpleNamespace(places=range(count)), scheduler=scheduler, last=None)
    return cast(InnerRegion, region)


def keep(memory: RegionMemory, run: str, region: InnerRegion) -> None:
    memory.keep(run, InnerSlice("inner", None, None), region, ref="r1")


def take(memory: RegionMemory, run: str) -> InnerRegion | None:
    return memory.take(run, InnerSlice("inner", "r1", None))


async def test_region_is_kept_for_one_slice() -> None:
    memory, region = RegionMemory(), region_of(3)
    keep(memory, "a", region)
    assert take(memory, "a") is region
    assert take(memory, "a") is None


async def test_million_nodes_fit_and_what_was_unused_for_longest_goes() -> None:
    memory, regions = RegionMemory(), {run: region_of(count) for run, count in (("a", 1), ("b", 1), ("c", 1_000_000))}
    for run, region in regions.items():
        keep(memory, run, region)
    keep(memory, "a", regions["a"])
    keep(memory, "d", region_of(199_999))
    assert [take(memory, run) is not None for run in "abcd"] == [True, False, True, True]


async def test_region_that_nobody_asks_for_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner_regions, "KEPT_FOR_S", 0.0)
    memory = RegionMemory()
    keep(memory, "a", region_of(1))
    await eventually(lambda: not memory._regions)
    assert (take(memory, "a"), memory._ends) == (None, {})
