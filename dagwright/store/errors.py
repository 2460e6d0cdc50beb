"""Errors of a payload store, by what to do next.

StoreError
├── PayloadMissing        final: no payload is stored under the reference
├── PayloadDamaged        final: the stored content is damaged; storing it again repairs it
├── StoreUnavailable      retry later; the message has advice for the operator
└── StoreMismatch         fix the setting: the workers use another store than this process
LocationInvalid           fix the setting; the message continues "DAGWRIGHT_PAYLOAD_STORE cannot be used: "
"""

from dagwright.core.errors import DagwrightError


class StoreError(DagwrightError):
    """Base of store errors. The message is one sentence."""


class PayloadMissing(StoreError):
    """No payload is stored under a reference."""

    def __init__(self, ref: str, *, store: str) -> None:
        super().__init__(
            f"the payload {ref[:80]} is not in the store {store}; it was removed, or DAGWRIGHT_PAYLOAD_STORE differs "
            "from the store that it was written to"
        )
        self.ref = ref


class PayloadDamaged(StoreError):
    """The stored content does not match the hash in its reference."""

    def __init__(self, ref: str, *, store: str) -> None:
        super().__init__(
            f"the payload {ref[:80]} in the store {store} is damaged: its content has another hash; restore it from "
            "a backup, or run its producer again"
        )
        self.ref = ref


class StoreUnavailable(StoreError):
    """The store cannot be used now."""


class StoreMismatch(StoreError):
    """The workers of a task queue use another store than this process."""


class LocationInvalid(DagwrightError, ValueError):
    """A text is not a valid store location."""
