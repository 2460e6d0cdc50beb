"""Paths to the nodes of sub-plans, where ids contain slashes."""

import pytest

from dagwright.features.commands.node_commands import RetryNode
from dagwright.features.commands.steering import apply_command
from dagwright.protocol.node_paths import running_sub_plan_of, sub_plan_of_path
from tests.support.plan_building import broken, node, plan_of, scheduler_of, started

_BELOW = plan_of(node("b/c"), node("c"))


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a/c", ("a", "c")),
        ("a/b/c", ("a/b", "c")),
        ("a/b/b/c", ("a/b", "b/c")),
        ("a/b", None),
        ("a/b#2", None),
        ("m[x/y]/c", ("m[x/y]", "c")),
        ("m/c", ("m", "c")),
        ("tool/c", None),
        ("nobody/c", None),
    ],
)
def test_longest_sub_plan_counts(path: str, found: tuple[str, str] | None) -> None:
    scheduler = scheduler_of(
        node("a", plan=_BELOW),
        node("a/b", plan=_BELOW),
        node("tool"),
        node("m", plan=_BELOW, for_each=["x/y"], key="{{item}}"),
    )
    assert sub_plan_of_path(scheduler, path) == found
    assert running_sub_plan_of(scheduler, path) is None
    started(scheduler)
    is_run = found is not None and found[0] != "m"
    assert running_sub_plan_of(scheduler, path) == (found if is_run else None)


def test_sub_plan_that_took_the_place_of_another_is_found_by_its_own_id() -> None:
    scheduler = scheduler_of(node("a", plan=plan_of(node("c"))))
    started(scheduler)
    scheduler.fail("a", broken(), at=1.0)
    assert apply_command(RetryNode("a", {"x": 1}), scheduler, at=2.0) is None
    started(scheduler)
    assert running_sub_plan_of(scheduler, "a#2/c") == ("a#2", "c")
