"""Suggestions for unknown names, and names in messages.

This module imports only `core.text`.
"""

import difflib
import heapq
from collections.abc import Collection, Iterable

from dagwright.core.text import cut_characters, join_first

_MIN_PREFIX_CHARACTERS = 3
"""Shortest name that counts as the prefix of another name."""
DEFAULT_HINT_COST = 2_000_000
"""Default size of a `HintBudget`, which allows comparisons for at most half a second of CPU time."""
MAX_NAME_CHARACTERS = 60
"""Names over this length are neither compared nor suggested."""
_MIN_RATIO = 0.6


class HintBudget:
    """Budget of the hints of one check, because comparing many unknown names takes quadratic time.

    Args:
        remaining_cost: cost of all comparisons that may still be made, in characters (see `find_nearest_names`). One
            character takes up to 250 ns.
    """

    def __init__(self, remaining_cost: int) -> None:
        self.remaining_cost = remaining_cost

    def spend(self, cost: int) -> bool:
        """Subtract a cost; return whether the budget covers it."""
        self.remaining_cost -= cost
        return self.remaining_cost >= 0

    def suggestion(
        self, name: str | None, known_names: Collection[str], *, excluded_name: str | None = None
    ) -> str | None:
        """Return a suggestion for an unknown name, as the function `suggestion` does.

        Returns:
            `None` also if `name` is `None` or the budget is spent.
        """
        if name is None or len(known_names) > self.remaining_cost:
            return None
        return suggestion(name, [known_name for known_name in known_names if known_name != excluded_name], budget=self)


def suggestion(name: str, known_names: Collection[str], *, budget: HintBudget | None = None) -> str | None:
    """Return `did you mean 'x'?` for the nearest known name; `None` if no name is near.

    A name that is a prefix of a known name, such as `calc`, is near too.

    Args:
        budget: budget of the comparisons; by default, a new budget of `DEFAULT_HINT_COST`.
    """
    nearest_names = find_nearest_names(name, known_names, limit=1, budget=budget)
    return f"did you mean {nearest_names[0]!r}?" if nearest_names else None


def not_one_of_message(name: str, known_names: Collection[str]) -> str:
    """Return a message such as `'runing' is not one of running, waiting; did you mean 'running'?`."""
    hint = suggestion(name, known_names)
    return f"{name!r:.60} is not one of {', '.join(known_names)}" + (f"; {hint}" if hint else "")


def find_nearest_names(
    name: str, known_names: Collection[str], *, limit: int, budget: HintBudget | None = None
) -> list[str]:
    """Return the known names that are near to an unknown name, the nearest first; empty if the budget is spent.

    Complexity: each known name costs 1. A known name of a similar length costs in addition the sum of both lengths. If
        the letters are similar too, the known name costs in addition the product of both lengths.
    """
    budget = budget or HintBudget(DEFAULT_HINT_COST)
    if len(name) > MAX_NAME_CHARACTERS or not budget.spend(len(known_names)):
        return []
    candidates = [known_name for known_name in known_names if len(known_name) <= MAX_NAME_CHARACTERS]
    folded_name = name.casefold()
    names = sorted(candidate for candidate in candidates if candidate.casefold() == folded_name)
    similar_names = _similar_names(name, candidates, budget)
    if similar_names is None:
        return []
    names += [known_name for _, known_name in heapq.nlargest(limit, similar_names)]
    if len(name) >= _MIN_PREFIX_CHARACTERS:
        longer_names = (candidate for candidate in candidates if candidate.casefold().startswith(folded_name))
        names += sorted(longer_names, key=lambda known_name: (len(known_name), known_name))
    return list(dict.fromkeys(names))[:limit]


def _similar_names(name: str, candidates: Iterable[str], budget: HintBudget) -> list[tuple[float, str]] | None:
    """Return (ratio, name) of similar names, like `difflib.get_close_matches`; `None` if the budget is spent."""
    matcher: difflib.SequenceMatcher[str] = difflib.SequenceMatcher(None, "", name)
    similar_names = []
    for candidate in candidates:
        total_characters = len(candidate) + len(name)
        if 2 * min(len(candidate), len(name)) < _MIN_RATIO * total_characters:
            continue
        matcher.set_seq1(candidate)
        if not budget.spend(total_characters):
            return None
        if matcher.quick_ratio() < _MIN_RATIO:
            continue
        if not budget.spend(len(candidate) * len(name)):
            return None
        if (ratio := matcher.ratio()) >= _MIN_RATIO:
            similar_names.append((ratio, candidate))
    return similar_names


SHOWN_NAME_CHARACTERS = 81
"""Maximum length of an external name in a message, including the `…` of a shortened name."""


def cut_name(name: str) -> str:
    """Return an external name, shortened for a message."""
    return cut_characters(name, SHOWN_NAME_CHARACTERS)


def format_names(
    names: Collection[str], *, nearest_to: str = "", limit: int = 8, budget: HintBudget | None = None
) -> str:
    """Return the distinct names on one line.

    If there are more than `limit` names, those nearest to `nearest_to` are first, and `and 3 more` replaces the last
    names.

    Args:
        nearest_to: an unknown name.
        budget: as for `suggestion`.
    """
    distinct_names = list(dict.fromkeys(names))
    nearest_names: list[str] = []
    if nearest_to and len(distinct_names) > limit:
        nearest_names = find_nearest_names(nearest_to, distinct_names, limit=limit, budget=budget)
    return join_first(list(dict.fromkeys([*nearest_names, *distinct_names])), limit)
