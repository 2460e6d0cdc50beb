"""Days that words mean."""

from datetime import date

import pytest

from dagwright_maritime.dates import FORMS, UnknownPeriod, parse_period

TODAY = date(2026, 2, 10)
"""A Tuesday."""


@pytest.mark.parametrize(
    ("words", "first", "last"),
    [
        ("today", "2026-02-10", "2026-02-10"),
        ("Yesterday", "2026-02-09", "2026-02-09"),
        ("tomorrow", "2026-02-11", "2026-02-11"),
        ("this week", "2026-02-09", "2026-02-15"),
        ("last week", "2026-02-02", "2026-02-08"),
        ("next month", "2026-03-01", "2026-03-31"),
        ("last month", "2026-01-01", "2026-01-31"),
        ("the last quarter", "2025-10-01", "2025-12-31"),
        ("this quarter", "2026-01-01", "2026-03-31"),
        ("previous year", "2025-01-01", "2025-12-31"),
        ("last 30 days", "2026-01-12", "2026-02-10"),
        ("past 2 weeks", "2026-01-28", "2026-02-10"),
        ("last 3 months", "2025-11-11", "2026-02-10"),
        ("next 7 days", "2026-02-10", "2026-02-16"),
        ("3 days ago", "2026-02-07", "2026-02-07"),
        ("2 quarters ago", "2025-07-01", "2025-09-30"),
        ("Q4", "2025-10-01", "2025-12-31"),
        ("Q1", "2026-01-01", "2026-03-31"),
        ("Q2 2025", "2025-04-01", "2025-06-30"),
        ("2025-Q3", "2025-07-01", "2025-09-30"),
        ("December", "2025-12-01", "2025-12-31"),
        ("February", "2026-02-01", "2026-02-28"),
        ("in Feb. 2024", "2024-02-01", "2024-02-29"),
        ("Sept 2025", "2025-09-01", "2025-09-30"),
        ("2025", "2025-01-01", "2025-12-31"),
        ("2025-12", "2025-12-01", "2025-12-31"),
        ("2025-12-31", "2025-12-31", "2025-12-31"),
        ("2025-10-01 to 2025-12-31", "2025-10-01", "2025-12-31"),
        ("from October 2025 until yesterday", "2025-10-01", "2026-02-09"),
        ("between Q3 and Q4", "2025-07-01", "2025-12-31"),
        ("since last month", "2026-01-01", None),
        ("after 2025", "2026-01-01", None),
        ("before Q4 2025", None, "2025-09-30"),
        ("until yesterday", None, "2026-02-09"),
    ],
)
def test_words_mean_days(words: str, first: str | None, last: str | None) -> None:
    found = [day.isoformat() if day is not None else None for day in parse_period(words, TODAY)]
    assert found == [first, last]


@pytest.mark.parametrize(
    "words",
    ["", "soon", "last", "Q5", "2025-13", "2025-02-30", "0 days ago", "last 99999999 years", "9999-12 to never", "ma"],
)
def test_text_without_days_is_refused_with_the_accepted_forms(words: str) -> None:
    with pytest.raises(UnknownPeriod) as refused:
        parse_period(words, TODAY)
    assert FORMS in str(refused.value)


def test_a_period_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(UnknownPeriod, match="ends before it starts"):
        parse_period("2026 to 2025", TODAY)


def test_each_reported_form_can_be_read() -> None:
    for form in FORMS.split(", "):
        assert parse_period(form, TODAY)


def test_the_same_day_of_a_shorter_month_is_its_last() -> None:
    assert parse_period("last 1 month", date(2026, 3, 31)) == (date(2026, 3, 1), date(2026, 3, 31))
