"""What somebody approved for a whole run, as a policy for the sub-plans of it."""

from typing import Any

import pytest

from dagwright.plan.policy import MAX_RULES, Policy, Rule, letting_run
from dagwright.plan.tools import Effects, ToolDeclaration

_PAY = ToolDeclaration("pay", effects=Effects.WRITE)
_MAIL = ToolDeclaration("mail", effects=Effects.WRITE)
_TO_EVE = {"properties": {"to": {"const": "eve"}}, "required": ["to"]}


def _verdicts(policy: Policy, to: str) -> tuple[Any, Any]:
    return policy.verdict(_PAY, lambda: {"to": to}), policy.verdict(_MAIL, lambda: {"to": to})


@pytest.mark.parametrize(
    "policy",
    [
        Policy((Rule("refuse", arguments=_TO_EVE), Rule("ask", effects=("write",)))),
        Policy((Rule("refuse", arguments=_TO_EVE), Rule("ask", tool="p*"), Rule("ask", tool="m*"))),
        Policy((Rule("refuse", arguments=_TO_EVE),), otherwise="ask"),
    ],
    ids=["by effects", "by name", "otherwise"],
)
def test_calls_that_were_asked_about_run_and_refused_ones_stay_refused(policy: Policy) -> None:
    below = letting_run(policy, ["pay"])
    assert _verdicts(below, "bob") == ("run", "ask")
    assert _verdicts(below, "eve") == ("refuse", "refuse")


def test_policy_without_remembered_tools_is_the_same() -> None:
    policy = Policy((Rule("ask"),))
    assert letting_run(policy, []) == policy


def test_tools_beyond_the_limit_of_rules_are_asked_about() -> None:
    below = letting_run(Policy((Rule("ask"),)), [f"tool{number}" for number in range(MAX_RULES)])
    assert len(below.rules) == MAX_RULES
    verdicts = [below.verdict(ToolDeclaration(f"tool{number}"), dict) for number in (0, MAX_RULES - 1)]
    assert verdicts == ["run", "ask"]
