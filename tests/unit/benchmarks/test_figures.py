"""Verdicts of the benchmarks on their measurements."""

import pytest

from benchmarks.figures import Figure, Verdict, format_table, ratio_figure


@pytest.mark.parametrize(
    ("value", "is_floor", "verdict"),
    [
        (1.0, False, "reached"),
        (2.0, False, "reached"),
        (2.9, False, "missed_within_slack"),
        (3.0, False, "missed_within_slack"),
        (3.1, False, "failed"),
        (2.0, True, "reached"),
        (1.4, True, "missed_within_slack"),
        (1.3, True, "failed"),
    ],
)
def test_figure_fails_only_if_its_goal_is_missed_by_more_than_half(
    value: float, is_floor: bool, verdict: Verdict
) -> None:
    assert Figure("x", value, 2.0, is_floor=is_floor).verdict == verdict


def test_figure_without_a_goal_has_the_verdict_reported() -> None:
    assert Figure("x", 9.0, None).verdict == "reported"


def test_ratio_is_computed_from_medians_and_the_table_shows_both_medians() -> None:
    figure = ratio_figure("chain: time", [1.0, 9.0, 3.0], [2.0, 2.0, 0.1], goal=1.15)
    assert figure.value == 1.5
    assert format_table([figure, Figure("reported", 2.0, None, unit="s")]) == (
        "| figure | measured | goal | |\n"
        "|---|---|---|---|\n"
        "| chain: time | 1.5 x (3 : 2) | at most 1.15 x | missed_within_slack |\n"
        "| reported | 2 s |  | reported |"
    )
