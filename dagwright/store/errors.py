"""What goes wrong in a payload store, sorted by what to do next.

StoreError
├── PayloadMissing        final: nothing is stored under the reference
├── PayloadDamaged        final: what is stored is not what was put; putting the content again heals it
├── StoreUnavailable      try again later; the text says what an operator can do about it
└── OtherStore            fix the setting: the workers use another store than this process
LocationInvalid           fix the setting; the text is a part of a sentence that begins with the variable
"""

from dagwright.core.errors import DagwrightError


class StoreError(DagwrightError):
    """Base of what a store raises; the text is one sentence."""


class PayloadMissing(StoreError):
    """Nothing is stored under a reference."""

    def __init__(self, ref: str, *, store: str) -> None:
        super().__init__(
            f"the payload {ref[:80]} is not in the store {store}; it was removed, or DAGWRIGHT_PAYLOAD_STORE names "
            "another store than where it was put"
        )
        self.ref = ref


class PayloadDamaged(StoreError):
    """What is stored under a reference does not have the hash that the reference names."""

    def __init__(self, ref: str, *, store: str) -> None:
        super().__init__(
            f"the payload {ref[:80]} in the store {store} is damaged: its content has another hash; restore it from "
            "a back-up, or run again what made it"
        )
        self.ref = ref


class StoreUnavailable(StoreError):
    """The store can not do its work now."""


class OtherStore(StoreError):
    """The workers of a task queue use another store than this process."""


class LocationInvalid(DagwrightError, ValueError):
    """A text names no place where a store could be."""
