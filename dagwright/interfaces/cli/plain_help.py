"""Help without the names of Python types: `ID <str>` tells a user nothing that `ID` does not."""

import re
from typing import Any

from typer.core import TyperCommand

_TYPE = re.compile(r" <(?:str|list\[str\])>")


class PlainHelp(TyperCommand):
    """A command whose help names values by what they are."""

    def get_help(self, ctx: Any) -> str:
        # Blanks instead, so that the columns stay where they are.
        return _TYPE.sub(lambda found: " " * len(found[0]), super().get_help(ctx))
