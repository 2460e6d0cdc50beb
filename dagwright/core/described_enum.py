"""Enumerations whose members have facts in addition to their value. The reference is generated from these facts.

A subclass declares its facts as annotations, and its `__new__` passes them to `create_member`.
"""

from enum import StrEnum
from typing import Any, Self


class DescribedEnum(StrEnum):
    """Base of the enumerations whose members have facts."""

    @classmethod
    def create_member(cls, value: str, **facts: Any) -> Self:
        """Return a member with a value and facts."""
        member = str.__new__(cls, value)
        member._value_ = value
        for name, fact in facts.items():
            setattr(member, name, fact)
        return member
