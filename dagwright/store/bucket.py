"""A payload store in a bucket of Amazon S3 or a compatible service: one object per payload.

boto3 finds credentials, region, endpoint and all other settings; the first use of the store imports boto3. The age of a
payload counts from the last-modified time of its object. Therefore `put` always writes the object, which also repairs
damaged content.
Cache entries are objects `cache/…` whose metadata contains the expiry time.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from dagwright.core.extras import require_extra
from dagwright.store.errors import PayloadDamaged, PayloadMissing, StoreUnavailable
from dagwright.store.location import BucketLocation
from dagwright.store.payloads import (
    CACHE_PREFIX,
    OWNERS,
    STORE_ID,
    CacheEntry,
    StoredPayload,
    is_key,
    is_owner,
    is_ref,
    ref_of,
)

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

T = TypeVar("T")

_MAX_CONCURRENT_REQUESTS = 16
"""Concurrent requests; they wait for the network, not for a processor."""
_MAX_ATTEMPTS = 5
"""Maximum number of attempts of one request; Temporal's retries are additional. A result is stored after the effect of
the tool, so a short network failure must not fail the attempt of the tool."""
_CONNECT_TIMEOUT_S = 5
_READ_TIMEOUT_S = 60

_PAGE_KEYS = 1_000
"""Maximum page size of a listing in S3."""

_EXPIRES_AT = "expires-at"
"""Metadata key of a cache entry: seconds since the epoch."""

_CONFLICT_CODES = {"PreconditionFailed", "ConditionalRequestConflict"}
_MISSING_CODES = {"NoSuchKey", "404", "NotFound"}
_FORBIDDEN_CODES = {"AccessDenied", "403", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"}


class BucketStore:
    """Stores payloads as objects `<prefix>/sha256-…` in an existing bucket.

    Args:
        location: bucket and prefix.
    """

    def __init__(self, location: BucketLocation) -> None:
        self._location = location
        self._executor = ThreadPoolExecutor(_MAX_CONCURRENT_REQUESTS, thread_name_prefix="payload-store")
        self._client_lock = threading.Lock()
        self._cached_client: S3Client | None = None
        self._id: str | None = None
        """ID that `identify` found; `None` before."""

    @property
    def location(self) -> str:
        """Location of the store; see `PayloadStore`."""
        return str(self._location)

    async def put(self, content: bytes) -> str:
        """Store content and return its reference; see `PayloadStore`."""

        def put() -> str:
            ref = ref_of(content)
            self._client().put_object(**self._object_location(ref), Body=content)
            return ref

        return await self._in_thread(put)

    async def get(self, ref: str) -> bytes:
        """Return content, checked against its hash; see `PayloadStore`."""

        def get() -> bytes:
            with self._reporting_missing_payload(ref):
                content = self._client().get_object(**self._object_location(ref))["Body"].read()
            if ref_of(content) != ref:
                raise PayloadDamaged(ref, store=str(self._location))
            return content

        return await self._in_thread(get)

    async def renew(self, ref: str) -> None:
        """Reset the age of a payload by copying it onto itself; see `PayloadStore`."""

        def renew() -> None:
            location = self._object_location(ref)
            with self._reporting_missing_payload(ref):
                self._client().copy_object(**location, CopySource=location, MetadataDirective="REPLACE")

        await self._in_thread(renew)

    async def delete(self, ref: str, *, renewed_before: datetime) -> bool:
        """Remove a payload that is old enough; see `PayloadStore`.

        S3 cannot delete conditionally on age, so the age is read first. A payload that is stored again between the two
        requests, after months without use, would be lost.
        """

        def delete() -> bool:
            location = self._object_location(ref)
            try:
                with self._reporting_missing_payload(ref):
                    written_at = self._client().head_object(**location)["LastModified"]
            except PayloadMissing:
                return False
            if written_at >= renewed_before:
                return False
            self._client().delete_object(**location)
            return True

        return await self._in_thread(delete)

    async def list_payloads(self) -> AsyncIterator[StoredPayload]:
        """Iterate over all payloads, in pages of a thousand."""
        async for name, entry in self._list(""):
            if is_ref(name):
                yield StoredPayload(name, entry["Size"], entry["LastModified"].astimezone(UTC))

    async def put_cache_entry(self, key: str, content: bytes, *, expires_at: datetime) -> None:
        """Store a cache entry; see `PayloadStore`."""
        location = self._cache_location(key)
        metadata = {_EXPIRES_AT: f"{expires_at.timestamp():.3f}"}
        await self._in_thread(lambda: self._client().put_object(**location, Body=content, Metadata=metadata))

    async def get_cache_entry(self, key: str) -> bytes | None:
        """Return the cache entry of a key; see `PayloadStore`."""

        def get_cache_entry() -> bytes | None:
            with self._reporting_missing_payload(key):
                content: bytes = self._client().get_object(**self._cache_location(key))["Body"].read()
                return content

        return await self._none_if_missing(get_cache_entry)

    async def delete_cache_entry(self, key: str, *, expired_before: datetime) -> bool:
        """Remove an expired cache entry; see `PayloadStore`."""
        entry = await self._cache_entry(key)
        if entry is None or entry.expires_at >= expired_before:
            return False
        await self._in_thread(lambda: self._client().delete_object(**self._cache_location(key)))
        return True

    async def cache_entries(self) -> AsyncIterator[CacheEntry]:
        """Iterate over all cache entries. The expiry time of each entry needs a request."""
        keys: list[str] = []
        async for name, _ in self._list(f"{CACHE_PREFIX}/"):
            keys += [name] if is_key(name) else []
            if len(keys) == _MAX_CONCURRENT_REQUESTS:
                for entry in await asyncio.gather(*map(self._cache_entry, keys)):
                    if entry is not None:
                        yield entry
                keys = []
        for entry in await asyncio.gather(*map(self._cache_entry, keys)):
            if entry is not None:
                yield entry

    async def _cache_entry(self, key: str) -> CacheEntry | None:
        def read_entry() -> CacheEntry:
            with self._reporting_missing_payload(key):
                head = self._client().head_object(**self._cache_location(key))
            try:
                expires_at = datetime.fromtimestamp(float(head["Metadata"][_EXPIRES_AT]), UTC)
            except (KeyError, ValueError, OverflowError):
                # The object was copied without its metadata: treat the entry as expired since the object was written.
                expires_at = head["LastModified"].astimezone(UTC)
            return CacheEntry(key, head["ContentLength"], expires_at)

        return await self._none_if_missing(read_entry)

    async def _none_if_missing(self, work: Callable[[], T]) -> T | None:
        try:
            return await self._in_thread(work)
        except PayloadMissing:
            return None

    async def claim(self, owner: str) -> None:
        """Record an owner of the store; see `PayloadStore`."""
        assert is_owner(owner), owner
        key = self._key(f"{OWNERS}/{owner}")
        await self._in_thread(lambda: self._client().put_object(Bucket=self._location.bucket, Key=key, Body=b""))

    async def owner_namespaces(self) -> frozenset[str]:
        """Return the IDs of all namespaces that have claimed the store."""
        return frozenset([name async for name, _ in self._list(f"{OWNERS}/")])

    async def identify(self) -> str:
        """Return the ID of the store, and create it at the first call; see `PayloadStore`."""
        stored_id = await self._stored_id()
        if stored_id is None:
            await self._in_thread(self._create_id)
            stored_id = await self._stored_id()
        self._id = self._id or stored_id
        self._check_id(stored_id)
        return str(stored_id)

    async def check(self) -> None:
        """Check that the store still has its ID; see `PayloadStore`."""
        self._check_id(await self._stored_id())

    async def _stored_id(self) -> str | None:
        def read() -> str:
            with self._reporting_missing_payload(STORE_ID):
                response = self._client().get_object(Bucket=self._location.bucket, Key=self._key(STORE_ID))
                return response["Body"].read().decode("ascii", errors="replace").strip()

        return await self._none_if_missing(read)

    def _create_id(self) -> None:
        from botocore.exceptions import ClientError  # noqa: PLC0415 -- imported late, like boto3

        content = uuid4().hex.encode()
        try:
            # With `IfNoneMatch`, because another process may be creating the ID.
            self._client().put_object(
                Bucket=self._location.bucket, Key=self._key(STORE_ID), Body=content, IfNoneMatch="*"
            )
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") not in _CONFLICT_CODES:
                raise

    def _check_id(self, stored_id: str | None) -> None:
        if self._id is not None and stored_id != self._id:
            raise StoreUnavailable(
                f"the payload store {self._location} has lost its ID (object {STORE_ID!r}): restore it from a backup"
            )

    async def _list(self, folder: str) -> AsyncIterator[tuple[str, Any]]:
        """Iterate over the objects with a key prefix; yield the rest of the key, and the entry of the S3 listing."""
        prefix = self._key(folder)
        request: Any = {"Bucket": self._location.bucket, "Prefix": prefix, "MaxKeys": _PAGE_KEYS}
        while True:
            page: Any = await self._in_thread(partial(self._list_page, request))
            for entry in page.get("Contents", ()):
                yield entry["Key"].removeprefix(prefix), entry
            if not page["IsTruncated"]:
                return
            request |= {"ContinuationToken": page["NextContinuationToken"]}

    def _list_page(self, request: Any) -> Any:
        return self._client().list_objects_v2(**request)

    def _object_location(self, ref: str) -> Any:
        if not is_ref(ref):
            raise PayloadMissing(ref, store=str(self._location))
        return {"Bucket": self._location.bucket, "Key": self._key(ref)}

    def _cache_location(self, key: str) -> Any:
        assert is_key(key), key
        return {"Bucket": self._location.bucket, "Key": self._key(f"{CACHE_PREFIX}/{key}")}

    def _key(self, name: str) -> str:
        return f"{self._location.prefix}/{name}" if self._location.prefix else name

    def _client(self) -> "S3Client":
        with self._client_lock:
            if self._cached_client is None:
                require_extra("s3")
                import boto3  # noqa: PLC0415 -- costs 0.2 s and 30 MB, which a store in a folder does not need
                from botocore.config import Config  # noqa: PLC0415

                config = Config(
                    connect_timeout=_CONNECT_TIMEOUT_S,
                    read_timeout=_READ_TIMEOUT_S,
                    max_pool_connections=_MAX_CONCURRENT_REQUESTS,
                    retries={"mode": "standard", "total_max_attempts": _MAX_ATTEMPTS},
                )
                self._cached_client = boto3.Session().client("s3", config=config)
            return self._cached_client

    @contextmanager
    def _reporting_missing_payload(self, ref: str) -> Iterator[None]:
        """Raise `PayloadMissing` if S3 does not find an object that the block requests."""
        from botocore.exceptions import ClientError  # noqa: PLC0415 -- imported late, like boto3

        try:
            yield
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _MISSING_CODES:
                raise PayloadMissing(ref, store=str(self._location)) from None
            raise

    async def _in_thread(self, work: Callable[[], T]) -> T:
        def run() -> T:
            require_extra("s3")
            from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 -- imported late, like boto3

            try:
                return work()
            except ClientError as error:
                raise StoreUnavailable(f"the payload store {self._location} {_error_text(error.response)}") from error
            except BotoCoreError as error:
                raise StoreUnavailable(f"the payload store {self._location} {_connection_error_text(error)}") from error

        return await asyncio.get_running_loop().run_in_executor(self._executor, run)


def _error_text(response: Any) -> str:
    error = response.get("Error", {})
    code = str(error.get("Code", "unknown"))
    if code == "NoSuchBucket":
        return "does not exist: there is no such bucket; create it, or set another bucket in DAGWRIGHT_PAYLOAD_STORE"
    if code in _FORBIDDEN_CODES:
        return (
            f"rejects these credentials ({code}); they need s3:GetObject, s3:PutObject, s3:DeleteObject on its "
            "objects and s3:ListBucket on the bucket"
        )
    return f"is unavailable: {code}: {error.get('Message', 'no reason given')}"


def _connection_error_text(error: Exception) -> str:
    kind = type(error).__name__
    if "Credential" in kind or "Token" in kind or "Profile" in kind:
        return f"has no credentials: {error}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    if "Region" in kind:
        return f"needs a region: {error}; set AWS_REGION or AWS_DEFAULT_REGION"
    return f"does not respond: {error}; check the network and AWS_ENDPOINT_URL_S3"
