"""The stores of the conformance tests, and functions that change the content of a store directly."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.loaders import create_loader
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

from dagwright.store import PayloadStore, StoredPayload, open_store

BUCKET = "payloads"
_ENVIRONMENT = {
    **dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "test"),
    **dict.fromkeys(("AWS_REGION", "AWS_DEFAULT_REGION"), "eu-central-1"),
    **dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), os.devnull),
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(frozen=True)
class StoreUnderTest:
    """A store under test.

    Args:
        location: argument of `open_store`.
        overwrite: replace the stored content of a reference directly; `None` deletes the content.
        add_foreign_entries: write entries with the given name next to the payloads; the entries are not payloads.
    """

    location: str
    overwrite: Callable[[str, bytes | None], None]
    add_foreign_entries: Callable[[str], None]

    def open(self) -> PayloadStore:
        """Return a new store object, as another process would open it."""
        return open_store(self.location)


def folder_under_test(folder: Path) -> StoreUnderTest:
    def overwrite(ref: str, content: bytes | None) -> None:
        (path,) = folder.rglob(ref)
        path.unlink() if content is None else path.write_bytes(content)

    def add_foreign_entries(name: str) -> None:
        (folder / "ab" / "cd").mkdir(parents=True, exist_ok=True)
        for parent in (folder, folder / "ab", folder / "ab" / "cd"):
            (parent / name).write_text("not a payload", encoding="ascii")

    return StoreUnderTest(str(folder), overwrite, add_foreign_entries)


@contextmanager
def s3_service() -> Iterator[str]:
    """Run a local S3 server during the block, set it as the endpoint of boto3, and yield its address."""
    # All servers of this process share one dictionary of buckets, so the buckets of an earlier server are removed.
    s3_backends.reset()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as patch:
        # Without this cache, each client would read the 2 MB description of S3 again.
        patch.setattr("botocore.session.create_loader", functools.cache(create_loader))
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_ENDPOINT_URL_S3", address)
        for name, value in _ENVIRONMENT.items():
            patch.setenv(name, value)
        try:
            configuration: Any = {"LocationConstraint": _ENVIRONMENT["AWS_REGION"]}
            boto3.Session().client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration=configuration)
            yield address
        finally:
            server.stop()


def bucket_under_test(prefix: str) -> StoreUnderTest:
    """Return a store in the bucket of `s3_service`, under a prefix that no other test uses."""
    client: Any = boto3.Session().client("s3")

    def overwrite(ref: str, content: bytes | None) -> None:
        address = {"Bucket": BUCKET, "Key": f"{prefix}/{ref}"}
        client.delete_object(**address) if content is None else client.put_object(**address, Body=content)

    def add_foreign_entries(name: str) -> None:
        for key in (name, f"{prefix}/{name}", f"{prefix}-other/{name}"):
            client.put_object(Bucket=BUCKET, Key=key, Body=b"not a payload")

    return StoreUnderTest(f"s3://{BUCKET}/{prefix}", overwrite, add_foreign_entries)


async def list_refs_and_sizes(store: PayloadStore) -> list[tuple[str, int]]:
    return sorted([(entry.ref, entry.size_bytes) async for entry in store.list_payloads()])


async def stored_payload_of(store: PayloadStore, ref: str) -> StoredPayload:
    (entry,) = [entry async for entry in store.list_payloads() if entry.ref == ref]
    return entry
