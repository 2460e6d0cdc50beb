"""The payload store: large values under the hash of their content, in a folder or an S3 bucket.

It exists so that no value travels through Temporal that is larger than its reference. `open_store` makes a store
from the setting `payload_store`; `clean_up` says what may be removed. Content never changes under its reference, so
whoever has one needs no lock and no version. Workflows never import this package: it does I/O.
"""

from dagwright.store.errors import (
    LocationInvalid,
    OtherStore,
    PayloadDamaged,
    PayloadMissing,
    StoreError,
    StoreUnavailable,
)
from dagwright.store.opening import open_store
from dagwright.store.payloads import PayloadStore, Remembered, StoredPayload, is_ref, ref_of

__all__ = [
    "LocationInvalid",
    "OtherStore",
    "PayloadDamaged",
    "PayloadMissing",
    "PayloadStore",
    "Remembered",
    "StoreError",
    "StoreUnavailable",
    "StoredPayload",
    "is_ref",
    "open_store",
    "ref_of",
]
