"""Owners of API keys: whose runs a key starts and sees."""

import re

ALL_OWNERS = "*"
"""Owner of the keys that see the runs of all."""
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")


def is_owner_name(text: str) -> bool:
    """Return whether a text is the name of one owner, which may also be the name of a folder."""
    return _OWNER.fullmatch(text) is not None
