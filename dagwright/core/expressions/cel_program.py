"""The one place that imports the CEL library, and only when there is something to compile.

Its package brings a shell of its own along (prompt_toolkit and more), which takes 0.15 s to import, longer than most
commands take. Plans without conditions never need it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import cel


def compile_cel(text: str) -> "cel.Program":
    """Returns the program of a CEL text.

    Raises:
        ValueError: it is no CEL.
        RecursionError: it nests too deep.
    """
    import cel  # noqa: PLC0415 - see the module

    return cel.compile(text)
