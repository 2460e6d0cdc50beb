"""Who gives a command: the name of the account that runs it."""

import os
import pwd


def account_name() -> str | None:
    """Returns the name of the account, which in some containers has none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return None
