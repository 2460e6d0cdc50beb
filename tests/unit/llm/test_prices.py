"""Prices of models, and usage whose cost is unknown."""

from decimal import Decimal
from pathlib import Path

import pytest

from dagwright.llm import PricesUnreadable, PriceTable, Usage, read_prices, shipped_prices
from dagwright.llm.prices import Price

USED = Usage(calls=1, prompt_tokens=1_000_000, completion_tokens=100_000, cached_tokens=400_000)


def saved(folder: Path, content: str) -> Path:
    path = folder / "prices.yaml"
    path.write_text(content, encoding="utf-8")
    return path


def test_the_table_that_ships_is_one() -> None:
    assert shipped_prices().price("gpt-4o-2024-08-06", "x") == Price(Decimal("2.50"), Decimal("1.25"), Decimal("10.00"))
    assert shipped_prices().price("nobody-knows") is None


@pytest.mark.parametrize(
    "content", ["models: {m: {prompt: 0.1, completion: 2}}", '{"models": {"m": {"prompt": 0.1, "completion": 2}}}']
)
def test_money_is_exact_and_cached_tokens_cost_as_others_by_default(content: str, tmp_path: Path) -> None:
    used = read_prices(saved(tmp_path, content)).priced(USED, "m")
    assert (used.money, used.cost) == (Decimal("0.3"), Decimal("0.3"))


def test_own_prices_replace_the_shipped_ones(tmp_path: Path) -> None:
    own = read_prices(saved(tmp_path, "models: {gpt-4o: {prompt: 1, completion: 1}, mine: {prompt: 0, completion: 0}}"))
    table = own.over(shipped_prices())
    assert (table.price("gpt-4o"), table.priced(USED, "mine").cost) == (Price(*[Decimal(1)] * 3), Decimal(0))
    assert table.price("gpt-4o-mini") is not None


def test_usages_add_up_and_never_hide_unknown_costs() -> None:
    table = PriceTable({"m": Price(Decimal(1), Decimal("0.5"), Decimal(2))})
    known, unknown = table.priced(USED, "m"), table.priced(USED, "other")
    uncounted = table.priced(Usage(calls=1, uncounted_calls=1), "m")
    assert (known.cost, unknown.cost, uncounted.cost) == (Decimal("1.0"), None, None)
    total = sum([known, unknown, uncounted, known], Usage())
    tokens = {"prompt_tokens": 3_000_000, "completion_tokens": 300_000, "cached_tokens": 1_200_000}
    assert total == Usage(calls=4, money=Decimal("2.0"), unpriced_calls=1, uncounted_calls=1, **tokens)
    assert (total.cost, total.tokens, total.to_json()["money"]) == (None, 3_300_000, "2.0")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "a price table has models"),
        ("models: {m: 3}", "models/m: a price has prompt, completion and perhaps cached"),
        ("models: {m: {prompt: 1}}", "models/m: a price has prompt"),
        ("models: {m: {prompt: 1, completion: 1, extra: 2}}", "models/m: a price has prompt"),
        ("models: {m: {prompt: cheap, completion: 1}}", "models/m: 'cheap' is no price; write a number from 0"),
        ("models: {m: {prompt: -1, completion: 1}}", "models/m: '-1' is no price"),
        ("models: {m: {prompt: NaN, completion: 1}}", "models/m: 'NaN' is no price"),
        ("models: [", "while parsing"),
        (None, "No such file"),
    ],
)
def test_invalid_table_is_refused_with_its_place(content: str | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "none.yaml" if content is None else saved(tmp_path, content)
    with pytest.raises(PricesUnreadable) as caught:
        read_prices(path)
    assert str(caught.value).replace("\n", " ").startswith(f"{path}: {words}")
