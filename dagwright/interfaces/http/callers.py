"""Who calls the API: what a key lets do, and whose runs it sees.

A run and a session belong to the owner of the key that started them; the owner stands in their memo, where every
gateway finds it. Without keys there is one caller, who may do all and sees all.
"""

from dataclasses import dataclass
from enum import StrEnum

from dagwright.core.model.requests import MayAnswer
from dagwright.protocol.run_labels import ALL_OWNERS
from dagwright.protocol.sessions import SessionNameInvalid, session_name

_OF = ":"
"""Between an owner, whose name has none, and the name of a session."""
_STEPS = (".", "..")
"""Names that clients take out of an address before they send it (RFC 3986, section 5.2.4)."""


class Scope(StrEnum):
    """What a key lets do beside looking."""

    RUN = "run"
    """Start runs."""
    ANSWER = "answer"
    """Answer what runs ask."""
    OPERATE = "operate"
    """Cancel, pause, change and fork runs."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sends a request.

    Args:
        owner: whose runs it sees and starts; `None` sees all, and its runs belong to nobody.
        key: id of its key; `None` where none is needed.
    """

    owner: str | None = None
    scopes: frozenset[Scope] = frozenset(Scope)
    key: str | None = None

    @property
    def starts_for(self) -> str | None:
        """Owner of the runs that it starts, and whose number is limited; `None` where no key is needed."""
        return ALL_OWNERS if self.owner is None and self.key is not None else self.owner

    @property
    def acts_as(self) -> str | None:
        """Whose acts and answers its are, whatever it says: its owner, or one of many its key; `None` without key."""
        return self.owner or self.key

    @property
    def may_answer(self) -> MayAnswer:
        """Which requests of its runs it may answer: with a key, those assigned to others only with `operate`."""
        return "all" if self.key is None or Scope.OPERATE in self.scopes else "unassigned"

    def sees(self, owner: str | None) -> bool:
        """Tells whether it sees what belongs to an owner."""
        return self.owner is None or self.owner == owner


ANYONE = Caller()
"""The caller where no key is needed."""


def session_of(caller: Caller, name: str) -> str:
    """Returns the session that a caller means: two owners may call theirs the same."""
    return name if caller.owner is None else f"{caller.owner}{_OF}{name}"


def new_session_of(caller: Caller, name: str) -> str:
    """Returns the session that a caller means, as it is kept; it begins if there is none.

    Raises:
        SessionNameInvalid: none can have that name, or no address could name it.
    """
    kept = session_name(session_of(caller, name))
    if "/" in kept or name.strip() in _STEPS:
        what = "holds a slash" if "/" in kept else "is a step in an address"
        words = f"{what}, so no address of the API could name it; choose another one"
        raise SessionNameInvalid(f"the name of the session {name!r:.80} {words}")
    return kept


def known_as(caller: Caller, session: str | None) -> str | None:
    """Returns how a caller calls a session."""
    return session if session is None or caller.owner is None else session.removeprefix(f"{caller.owner}{_OF}")
