"""Keyword arguments that Python programs pass: an unknown name is refused where it is passed."""

from collections.abc import Collection, Iterable

from dagwright.core.expressions.references import suggestion


def refuse_unknown(given: Iterable[str], known: Collection[str], *, function: str) -> None:
    """Refuse keyword arguments that a function does not have.

    Args:
        function: name of the function, for the message.

    Raises:
        TypeError: one is unknown; the message has the nearest name.
    """
    for name in given:
        if name not in known:
            near = suggestion(name, known)
            raise TypeError(f"{function}() got an unexpected argument {name!r}" + (f"; {near}" if near else ""))
