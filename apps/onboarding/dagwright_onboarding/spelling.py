"""Correction of misspelt words, and selection of the words that a near match must have.

All functions are pure. This module must not import the database.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from rapidfuzz import fuzz

Spellings = Sequence[str]
"""Known words that a word of a text may stand for."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_MAX_SPELLINGS = 10
_WORD_SIMILARITY = 60.0
"""Minimum rapidfuzz ratio of a misspelt word to a word that it may stand for; `cohen` and `chan` have 67."""
_MAX_COMBINED_WORDS = 6
"""Only the longest words of a text are combined, at most this many. Six words have 63 subsets."""
_MIN_PART_CHARACTERS = 2


def words_one_edit_away(word: str) -> set[str]:
    """Return the words that differ by one letter: inserted, deleted, changed, or swapped with the next letter."""
    letters = sorted({*_LETTERS, *word})
    halves = [(word[:position], word[position:]) for position in range(len(word) + 1)]
    insertions = {left + letter + right for left, right in halves for letter in letters}
    replacements = {left + letter + right[1:] for left, right in halves if right for letter in letters}
    deletions = {left + right[1:] for left, right in halves if right}
    swaps = {left + right[1] + right[0] + right[2:] for left, right in halves if len(right) > 1}
    return (insertions | replacements | deletions | swaps) - {word, ""}


def trigrams(word: str) -> list[str]:
    """Return the distinct trigrams of a word in order, padded with two spaces before and one space after the word."""
    padded_word = f"  {word} "
    return list(dict.fromkeys(padded_word[position : position + 3] for position in range(len(padded_word) - 2)))


def rank_spellings(word: str, known_words: Iterable[str]) -> list[str]:
    """Return the known words that a word may mean, the likeliest first."""
    ratings = ((fuzz.ratio(word, spelling), spelling) for spelling in set(known_words))
    best_ratings = sorted((-rating, spelling) for rating, spelling in ratings if rating >= _WORD_SIMILARITY)
    return [spelling for _, spelling in best_ratings[:_MAX_SPELLINGS]]


def name_similarity(core: Sequence[str], other_core: Sequence[str]) -> float:
    """Return the similarity of two names, 0 to 100, ignoring word order and gaps.

    Args:
        core, other_core: words of the names without their legal forms.
    """
    sorted_word_ratio = fuzz.token_sort_ratio(" ".join(core), " ".join(other_core))
    return max(sorted_word_ratio, fuzz.ratio("".join(core), "".join(other_core)))


def resplit_words(words: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the variants of a text with two words joined or one word split, such as `blackrock` for `black rock`."""
    joined_variants = [
        (*words[:position], words[position] + words[position + 1], *words[position + 2 :])
        for position in range(len(words) - 1)
    ]
    split_variants = [
        (*words[:position], word[:cut], word[cut:], *words[position + 1 :])
        for position, word in enumerate(words)
        for cut in range(_MIN_PART_CHARACTERS, len(word) - _MIN_PART_CHARACTERS + 1)
    ]
    return [*joined_variants, *split_variants]


def word_subsets(words: Sequence[str], *, min_similarity: float) -> Iterator[list[tuple[int, ...]]]:
    """Yield the lists of subsets of equal size (as positions of words), from the largest size down.

    A subset is included if a name that consists of its words can reach `min_similarity`. The first size without such a
    subset ends the iteration.

    Args:
        min_similarity: rapidfuzz ratio, 0 to 100.
    """
    letter_count = sum(map(len, words))
    longest_positions = sorted(
        sorted(range(len(words)), key=lambda position: -len(words[position]))[:_MAX_COMBINED_WORDS]
    )
    for count in range(min(len(words) - 1, len(longest_positions)), 0, -1):
        subsets = []
        for positions in combinations(longest_positions, count):
            subset_letter_count = sum(len(words[position]) for position in positions)
            if 200 * subset_letter_count >= min_similarity * (letter_count + subset_letter_count):
                subsets.append(positions)
        if not subsets:
            return
        yield subsets
