"""The payload store: large values under the hash of their content, in a folder or an S3 bucket.

Temporal's history has only references to large values. `open_store` opens the store of the setting
`payload_store`; `clean_up` determines what may be removed. The content of a reference never changes, so readers need
neither locks nor versions. Workflows never import this package, because it does I/O. The package imports only `core`.
"""

from dagwright.store.errors import (
    LocationInvalid,
    PayloadDamaged,
    PayloadMissing,
    StoreError,
    StoreMismatch,
    StoreUnavailable,
)
from dagwright.store.opening import open_store
from dagwright.store.payloads import CacheEntry, PayloadStore, StoredPayload, is_ref, ref_of

__all__ = [
    "CacheEntry",
    "LocationInvalid",
    "PayloadDamaged",
    "PayloadMissing",
    "PayloadStore",
    "StoreError",
    "StoreMismatch",
    "StoreUnavailable",
    "StoredPayload",
    "is_ref",
    "open_store",
    "ref_of",
]
