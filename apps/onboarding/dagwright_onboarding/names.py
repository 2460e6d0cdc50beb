"""Normalize names for storage and comparison: the stored text, a key that equal names share, and the words.

The store, the lookups and the loader share these pure functions. `name_key` makes the stored keys, so a change of
`name_key` needs a migration. This module must not import the database.
"""

import re
import unicodedata
from collections.abc import Sequence

from dagwright_onboarding.text_formats import BIDI_CONTROLS, MAX_NAME_CHARACTERS

_LETTERS_WITHOUT_DECOMPOSITION = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "’": "'", "‘": "'"}
    | dict.fromkeys("‐‑‒–—−", "-")
)
_IGNORED_CATEGORIES = frozenset({"Mn", "Me", "Cf"})
"""Unicode categories that a key omits: accents and zero-width characters."""
_DOTS_INSIDE_ABBREVIATIONS = re.compile(r"(?<=\w)\.")
_SEPARATORS = re.compile(r"[\s.\-–/]+")
_NOT_WORD = re.compile(r"[^\w&]+")

_LEGAL_FORMS = frozenset(
    {
        *("ab", "ag", "aktiengesellschaft", "aps", "as", "asa", "bv", "bvba", "co", "company", "corp", "corporation"),
        *("cv", "dac", "gesmbh", "gmbh", "icav", "inc", "incorporated", "kft", "kg", "kgaa", "lda", "limited", "llc"),
        *("llp", "lp", "ltd", "ltda", "mbh", "nv", "ohg", "oy", "oyj", "plc", "pte", "pty", "pvt", "sa", "sarl"),
        *("sas", "sca", "scs", "scsp", "se", "sl", "slp", "snc", "spa", "sprl", "srl", "ug", "vcc"),
    }
)
"""Words at the end of a name that state the legal form of an organisation."""

_USUAL_FORMS = {
    "aktien gesellschaft": "ag",
    "aktiengesellschaft": "ag",
    "a g": "ag",
    "besloten vennootschap": "bv",
    "b v": "bv",
    "bvba": "sprl",
    "company": "co",
    "corporation": "corp",
    "designated activity company": "dac",
    "gesellschaft mit beschrankter haftung": "gmbh",
    "gesmbh": "gmbh",
    "incorporated": "inc",
    "limited": "ltd",
    "limited liability company": "llc",
    "limited liability partnership": "llp",
    "limited partnership": "lp",
    "l l c": "llc",
    "l l p": "llp",
    "l p": "lp",
    "mbh": "gmbh",
    "naamloze vennootschap": "nv",
    "n v": "nv",
    "private limited company": "ltd",
    "public limited company": "plc",
    "p l c": "plc",
    "societa per azioni": "spa",
    "societe a responsabilite limitee": "sarl",
    "societe anonyme": "sa",
    "societe en commandite speciale": "scsp",
    "s a": "sa",
    "s a r l": "sarl",
    "sa rl": "sarl",
    "s c a": "sca",
    "s c sp": "scsp",
    "s p a": "spa",
    "sp z o o": "sp z oo",
    "sp z oo": "sp z oo",
}
"""Legal forms that are spelt out, have gaps (`S.à r.l.` gives `sa rl`) or are in another language -> the usual word."""
_CONJUNCTIONS = ("&", "and", "und", "et")
_MULTI_WORD_FORMS = sorted((tuple(form.split()) for form in _USUAL_FORMS if " " in form), key=lambda words: -len(words))


def clean_name(text: str, field_name: str = "the name") -> str:
    """Return a name as it is stored: composed Unicode, single spaces, no control or bidirectional characters.

    Raises:
        ValueError: the text is empty, over `MAX_NAME_CHARACTERS`, or has control characters or lone surrogates.
    """
    clean_text = " ".join(BIDI_CONTROLS.sub("", unicodedata.normalize("NFC", text)).split())
    if not clean_text:
        raise ValueError(f"{field_name} is empty")
    if len(clean_text) > MAX_NAME_CHARACTERS:
        raise ValueError(f"{field_name} has {len(clean_text)} characters, at most {MAX_NAME_CHARACTERS} are allowed")
    for position, character in enumerate(clean_text):
        if unicodedata.category(character) in ("Cc", "Cs"):
            raise ValueError(f"{field_name} has the character U+{ord(character):04X} at position {position}")
    return clean_text


def name_key(text: str) -> str:
    """Return the key that equal names share, regardless of case, accents and white space."""
    folded_text = unicodedata.normalize("NFKC", text).casefold()
    decomposed_text = unicodedata.normalize("NFKD", folded_text)
    unaccented_text = "".join(
        character for character in decomposed_text if unicodedata.category(character) not in _IGNORED_CATEGORIES
    )
    return " ".join(unaccented_text.translate(_LETTERS_WITHOUT_DECOMPOSITION).split())


def identifier_key(text: str) -> str:
    """Return an identifier as it is stored: `6354-00bl ackr` becomes `635400BLACKR`."""
    return _SEPARATORS.sub("", text).upper()


def words_of(key: str) -> tuple[str, ...]:
    """Return the words of a name key in order, without punctuation (`s.a.` is the word `sa`)."""
    return tuple(_NOT_WORD.sub(" ", _DOTS_INSIDE_ABBREVIATIONS.sub("", key).replace("'", "")).split())


def core_words(key: str) -> tuple[str, ...]:
    """Return the words of a name key without the legal form at its end; all words if the name is only a legal form."""
    words = words_of(key)
    return _split_legal_form(words)[0] or words


def legal_form(words: Sequence[str]) -> tuple[str, ...]:
    """Return the legal form at the end of a name, with each part in its usual spelling, in order.

    `kite sa rl` and `kite sarl` give `sarl`, `kite gmbh & co kg` gives `gmbh`, `co`, `kg`. A name without a legal form,
    and a name that is only a legal form, give an empty tuple.
    """
    core, form = _split_legal_form(tuple(words))
    return form if core else ()


def is_legal_form(key: str) -> bool:
    """Return whether a name key consists of a legal form only: `s.a r.l.` does not name a company."""
    words = words_of(key)
    return bool(words) and not _split_legal_form(words)[0]


def _split_legal_form(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words before the legal forms at the end, and these forms."""
    forms: list[str] = []
    while words and (length := _legal_form_length(words)):
        form = " ".join(words[len(words) - length :])
        forms.insert(0, _USUAL_FORMS.get(form, form))
        words = words[: len(words) - length]
        # Drop the conjunction of `GmbH & Co. KG`.
        if words and words[-1] in _CONJUNCTIONS:
            words = words[:-1]
    return words, tuple(forms)


def _legal_form_length(words: tuple[str, ...]) -> int:
    """Return the number of words at the end that are a legal form."""
    for ending in _MULTI_WORD_FORMS:
        if words[-len(ending) :] == ending:
            return len(ending)
    return 1 if words[-1] in _LEGAL_FORMS else 0
