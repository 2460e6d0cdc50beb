"""How names are compared: what counts as the same text, as the same name, and what is a word of a name.

Pure functions over strings, so the store, the lookups and the loader agree on them. A stored key is made by
`name_key`, so a change of that function needs a migration. This module must not import the database.
"""

import re
import unicodedata
from collections.abc import Sequence

from dagwright_onboarding.text_formats import NAME_LIMIT, TURNING

_LETTERS_WITHOUT_DECOMPOSITION = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "’": "'", "‘": "'"}
    | dict.fromkeys("‐‑‒–—−", "-")
)
_UNSEEN = frozenset({"Mn", "Me", "Cf"})
"""Unicode categories that a key leaves out: accents and what has no width."""
_DOTS_INSIDE_ABBREVIATIONS = re.compile(r"(?<=\w)\.")
_SEPARATORS = re.compile(r"[\s.\-–/]+")
_NO_WORD = re.compile(r"[^\w&]+")

_LEGAL_FORMS = frozenset(
    {
        *("ab", "ag", "aktiengesellschaft", "aps", "as", "asa", "bv", "bvba", "co", "company", "corp", "corporation"),
        *("cv", "dac", "gesmbh", "gmbh", "icav", "inc", "incorporated", "kft", "kg", "kgaa", "lda", "limited", "llc"),
        *("llp", "lp", "ltd", "ltda", "mbh", "nv", "ohg", "oy", "oyj", "plc", "pte", "pty", "pvt", "sa", "sarl"),
        *("sas", "sca", "scs", "scsp", "se", "sl", "slp", "snc", "spa", "sprl", "srl", "ug", "vcc"),
    }
)
"""Words at the end of a name that say how an organisation is incorporated, not what it is called."""

_SAME_FORM = {
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
"""Forms that are written out, with gaps (`S.à r.l.` gives `sa rl`) or in another language -> the word for them."""
_AND = ("&", "and", "und", "et")
_LONG_FORMS = sorted((tuple(form.split()) for form in _SAME_FORM if " " in form), key=lambda words: -len(words))


def clean_name(text: str, what: str = "the name") -> str:
    """Returns a name as it is stored: composed Unicode, single spaces, nothing that cannot be shown or turns the text.

    Raises:
        ValueError: the text is empty, over `NAME_LIMIT`, or holds control characters or lone surrogates.
    """
    cleaned = " ".join(TURNING.sub("", unicodedata.normalize("NFC", text)).split())
    if not cleaned:
        raise ValueError(f"{what} is empty")
    if len(cleaned) > NAME_LIMIT:
        raise ValueError(f"{what} has {len(cleaned)} characters, at most {NAME_LIMIT} are allowed")
    for position, character in enumerate(cleaned):
        if unicodedata.category(character) in ("Cc", "Cs"):
            raise ValueError(f"{what} holds the character U+{ord(character):04X} at position {position}")
    return cleaned


def name_key(text: str) -> str:
    """Returns the key under which two spellings are the same name: no case, accents or odd white space."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    decomposed = unicodedata.normalize("NFKD", folded)
    plain = "".join(character for character in decomposed if unicodedata.category(character) not in _UNSEEN)
    return " ".join(plain.translate(_LETTERS_WITHOUT_DECOMPOSITION).split())


def identifier_key(text: str) -> str:
    """Returns an identifier as it is stored, however it was written: `6354-00bl ackr` is `635400BLACKR`."""
    return _SEPARATORS.sub("", text).upper()


def words_of(key: str) -> tuple[str, ...]:
    """Returns the words of a name key in order, punctuation dropped (`s.a.` is the word `sa`)."""
    return tuple(_NO_WORD.sub(" ", _DOTS_INSIDE_ABBREVIATIONS.sub("", key).replace("'", "")).split())


def core_words(key: str) -> tuple[str, ...]:
    """Returns the words of a name key without the legal form at its end, or all if nothing else is left."""
    words = words_of(key)
    return _parted(words)[0] or words


def legal_form(words: Sequence[str]) -> tuple[str, ...]:
    """Returns how an organisation is incorporated by the words of its name, each form in one spelling, in order.

    `kite sa rl` and `kite sarl` give `sarl`, `kite gmbh & co kg` gives `gmbh`, `co`, `kg`; a name that says nothing of
    it, or nothing else, gives nothing.
    """
    core, form = _parted(tuple(words))
    return form if core else ()


def is_legal_form(key: str) -> bool:
    """Returns whether a name key has words, and none besides a legal form: `s.a r.l.` names no company."""
    words = words_of(key)
    return bool(words) and not _parted(words)[0]


def _parted(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the words before the legal forms at the end, and these forms."""
    forms: list[str] = []
    while words and (length := _ending(words)):
        form = " ".join(words[len(words) - length :])
        forms.insert(0, _SAME_FORM.get(form, form))
        words = words[: len(words) - length]
        # Of `GmbH & Co. KG` nothing is left.
        if words and words[-1] in _AND:
            words = words[:-1]
    return words, tuple(forms)


def _ending(words: tuple[str, ...]) -> int:
    """Returns how many words at the end are a legal form."""
    for ending in _LONG_FORMS:
        if words[-len(ending) :] == ending:
            return len(ending)
    return 1 if words[-1] in _LEGAL_FORMS else 0
