"""Name of the account that runs a command."""

import os
import pwd


def account_name() -> str | None:
    """Return the name of the account; `None` if it has none, as in some containers."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return None
