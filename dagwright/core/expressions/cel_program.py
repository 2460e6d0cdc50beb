"""Lazy import of the CEL library; no other module may import it.

The library's package imports an interactive shell (prompt_toolkit and more), which takes 0.15 s, longer than most
commands take. Plans without conditions never need it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import cel


def compile_cel(text: str) -> "cel.Program":
    """Compile a CEL expression.

    Raises:
        ValueError: the text is not valid CEL.
        RecursionError: the expression is nested too deep.
    """
    import cel  # noqa: PLC0415 - see the module docstring

    return cel.compile(text)
