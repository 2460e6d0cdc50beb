"""Enumerations whose members have further attributes in addition to the value, such as a text in Markdown.

The reference documentation is generated from these attributes. A subclass declares the attributes as annotations, and
its `__new__` passes their values to `create_member`.
"""

from enum import StrEnum
from typing import Any, Self


class DescribedEnum(StrEnum):
    """Base of the enumerations whose members have further attributes."""

    @classmethod
    def create_member(cls, value: str, **attributes: Any) -> Self:
        """Return a member with these attributes."""
        member = str.__new__(cls, value)
        member._value_ = value
        for name, attribute in attributes.items():
            setattr(member, name, attribute)
        return member
