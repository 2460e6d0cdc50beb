"""How a misspelt word is put right, and which words of a text a name has to have to be told as near.

Pure functions over strings. This module must not import the database.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from rapidfuzz import fuzz

Spellings = Sequence[str]
"""Words of names, each of which may be meant by one word of a text."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_SPELLINGS_KEPT = 10
_LIKENESS_OF_WORDS = 60.0
"""rapidfuzz ratio from which one word may stand for another; `cohen` and `chan` have 67."""
_WORDS_COMBINED = 6
"""The longest words of a text, of which combinations are tried; of six there are 57."""
_SHORTEST_PART = 2


def one_edit_away(word: str) -> set[str]:
    """Returns what a word may be if one letter was left out, put in, changed, or swapped with the next one."""
    letters = sorted({*_LETTERS, *word})
    halves = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    omitted = {before + letter + after for before, after in halves for letter in letters}
    changed = {before + letter + after[1:] for before, after in halves if after for letter in letters}
    put_in = {before + after[1:] for before, after in halves if after}
    swapped = {before + after[1] + after[0] + after[2:] for before, after in halves if len(after) > 1}
    return (omitted | changed | put_in | swapped) - {word, ""}


def trigrams(word: str) -> list[str]:
    """Returns each three letters in a row, with two blanks before the word and one behind, in order and once."""
    padded = f"  {word} "
    return list(dict.fromkeys(padded[at : at + 3] for at in range(len(padded) - 2)))


def likely(word: str, known: Iterable[str]) -> list[str]:
    """Returns the known words that may be meant by a word, the likeliest first."""
    rated = ((fuzz.ratio(word, each), each) for each in set(known))
    kept = sorted((-rating, each) for rating, each in rated if rating >= _LIKENESS_OF_WORDS)
    return [each for _, each in kept[:_SPELLINGS_KEPT]]


def likeness_of(core: Sequence[str], other: Sequence[str]) -> float:
    """Returns 0 to 100: how alike two names are, whatever the order of their words, their gaps and legal form."""
    in_any_order = fuzz.token_sort_ratio(" ".join(core), " ".join(other))
    return max(in_any_order, fuzz.ratio("".join(core), "".join(other)))


def divided_otherwise(words: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns the text with two words written as one, or one as two: `black rock`, `blackrock`."""
    joined = [(*words[:at], words[at] + words[at + 1], *words[at + 2 :]) for at in range(len(words) - 1)]
    split = [
        (*words[:at], word[:cut], word[cut:], *words[at + 1 :])
        for at, word in enumerate(words)
        for cut in range(_SHORTEST_PART, len(word) - _SHORTEST_PART + 1)
    ]
    return [*joined, *split]


def fewer_words(words: Sequence[str], *, likeness: float) -> Iterator[list[tuple[int, ...]]]:
    """Yields which words a name may have if it lacks one, two, … of them, as positions, while that can be near.

    Args:
        likeness: rapidfuzz ratio, 0 to 100, that a name of no other words has to reach.
    """
    total = sum(map(len, words))
    longest = sorted(sorted(range(len(words)), key=lambda at: -len(words[at]))[:_WORDS_COMBINED])
    for count in range(min(len(words) - 1, len(longest)), 0, -1):
        kept = []
        for positions in combinations(longest, count):
            letters = sum(len(words[at]) for at in positions)
            if 200 * letters >= likeness * (total + letters):
                kept.append(positions)
        if not kept:
            return
        yield kept
