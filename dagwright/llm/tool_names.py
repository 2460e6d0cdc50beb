"""Names of tools as the protocol takes them: at most 64 letters, digits, `_` and `-`. Those of plans may have dots."""

import hashlib
import re
from collections.abc import Iterable

LONGEST = 64
_WRONG = re.compile(r"[^A-Za-z0-9_-]")


class ToolNames:
    """The names of the tools of one call, both ways; two tools never have the same one.

    Args:
        names: as plans have them.
    """

    def __init__(self, names: Iterable[str]) -> None:
        names = list(dict.fromkeys(names))
        plain = [wire_name(name) for name in names]
        self._sent = {
            name: sent if plain.count(sent) == 1 or sent == name else _marked(name)
            for name, sent in zip(names, plain, strict=True)
        }
        self._ours = {sent: name for name, sent in self._sent.items()}

    def sent(self, name: str) -> str:
        """Returns the name that goes out, also of a tool that is not offered any more."""
        return self._sent.get(name) or wire_name(name)

    def ours(self, sent: str) -> str:
        """Returns the tool that a model calls; what is none stays as it is, for whoever calls it to tell."""
        return self._ours.get(sent, sent)


def wire_name(name: str) -> str:
    """Returns a name that the protocol takes."""
    plain = _WRONG.sub("_", name)
    return plain if 1 <= len(plain) <= LONGEST else _marked(name)


def _marked(name: str) -> str:
    mark = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:8]
    return f"{_WRONG.sub('_', name)[: LONGEST - len(mark) - 1]}_{mark}"
