"""The caller of the API: the scopes of its key, and the runs that it may see.

A run or session belongs to the owner of the key that started it. The owner is in the workflow's memo, where every
gateway can read it. Without keys there is one caller, with all scopes and access to all runs.
"""

from dataclasses import dataclass
from enum import StrEnum

from dagwright.core.model.requests import MayAnswer
from dagwright.protocol.fairness import Fairness, fairness_of_owner
from dagwright.protocol.run_labels import ALL_OWNERS
from dagwright.protocol.sessions import SessionIdInvalid, normalized_session_name

_OWNER_SEPARATOR = ":"
"""Separates the owner from the ID of the session. The name of an owner cannot contain the separator."""
_DOT_SEGMENTS = (".", "..")
"""Names that clients remove from a URL before sending it (RFC 3986, section 5.2.4)."""


class KeyScope(StrEnum):
    """Scopes of a key. Any key may read. The reference page is generated from this class."""

    RUN = "run"
    """Start runs and call models."""
    ANSWER = "answer"
    """Answer requests of runs."""
    OPERATE = "operate"
    """Cancel, pause, change and fork runs, change their limits and policies, add nodes (also in an answer), and see
    the URL of the Temporal UI in `ui_url`."""


READ_ONLY_SCOPE = "read"
"""Name of the scope of a key without scopes, which can only read."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    Args:
        owner: owner of the runs that the caller sees and starts; `None` for a caller that sees all runs.
        key_id: ID of the key of the caller; `None` if no key is required.
        weight: weight of the owner's runs when worker slots are shared between owners.
    """

    owner: str | None = None
    scopes: frozenset[KeyScope] = frozenset(KeyScope)
    key_id: str | None = None
    weight: float = 1.0

    @property
    def run_owner(self) -> str | None:
        """Owner in whose quota the open runs of the caller count; `None` if no key is required."""
        return ALL_OWNERS if self.owner is None and self.key_id is not None else self.owner

    @property
    def fairness(self) -> Fairness | None:
        """Fairness of the runs that the caller starts."""
        return fairness_of_owner(self.run_owner, self.weight)

    @property
    def actor_name(self) -> str | None:
        """Name recorded for commands and answers: the owner, or else the ID of the key. `None` without a key."""
        return self.owner or self.key_id

    @property
    def answerable_requests(self) -> MayAnswer:
        """Requests that the caller may answer. With a key, requests to another assignee need the scope `operate`."""
        return "all" if self.key_id is None or KeyScope.OPERATE in self.scopes else "unassigned"

    def can_see(self, owner: str | None) -> bool:
        """Return whether the caller sees the runs and sessions of an owner."""
        return self.owner is None or self.owner == owner


ANYONE = Caller()
"""The caller if no key is required."""


def stored_session_name(caller: Caller, session_id: str) -> str:
    """Return the name under which a session of the caller is stored: two owners may use the same session ID."""
    return session_id if caller.owner is None else f"{caller.owner}{_OWNER_SEPARATOR}{session_id}"


def validated_session_name(caller: Caller, session_id: str) -> str:
    """Like `stored_session_name`, but reject IDs that cannot be used for a new session.

    Raises:
        SessionIdInvalid: the ID is invalid, or cannot be part of a URL.
    """
    session_name = normalized_session_name(stored_session_name(caller, session_id))
    if "/" in session_name or session_id.strip() in _DOT_SEGMENTS:
        problem = "contains a slash" if "/" in session_name else "is a relative path segment"
        message = f"{problem}, so it cannot be part of a URL of the API; choose another ID"
        raise SessionIdInvalid(f"the session ID {session_id!r:.80} {message}")
    return session_name


def public_session_id(caller: Caller, session_name: str | None) -> str | None:
    """Return the session ID that the caller uses for a stored session."""
    return (
        session_name
        if session_name is None or caller.owner is None
        else session_name.removeprefix(f"{caller.owner}{_OWNER_SEPARATOR}")
    )
