"""The stores that the kit runs on, each with a way to damage its values."""

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
class StoreAtHand:
    """A store under test.

    Args:
        location: what `open_store` takes.
        overwrite: puts other content, or none, under a reference, behind the store's back.
        add: puts something that is no payload beside the payloads.
    """

    location: str
    overwrite: Callable[[str, bytes | None], None]
    add: Callable[[str], None]

    def open(self) -> PayloadStore:
        """Return the store as another process would have it."""
        return open_store(self.location)


def folder_at_hand(folder: Path) -> StoreAtHand:
    def overwrite(ref: str, content: bytes | None) -> None:
        (path,) = folder.rglob(ref)
        path.unlink() if content is None else path.write_bytes(content)

    def add(name: str) -> None:
        (folder / "ab" / "cd").mkdir(parents=True, exist_ok=True)
        for place in (folder, folder / "ab", folder / "ab" / "cd"):
            (place / name).write_text("no payload", encoding="ascii")

    return StoreAtHand(str(folder), overwrite, add)


@contextmanager
def s3_service() -> Iterator[str]:
    """Serve S3 on a port of its own, as boto3's environment variables say inside the block; yields its address."""
    # All servers of this process keep their buckets in the same place, so buckets of an earlier server are removed.
    s3_backends.reset()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as patch:
        # Each client would read the 2 MB of the description of S3 again.
        patch.setattr("botocore.session.create_loader", functools.cache(create_loader))
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_ENDPOINT_URL_S3", address)
        for name, value in _ENVIRONMENT.items():
            patch.setenv(name, value)
        try:
            place: Any = {"LocationConstraint": _ENVIRONMENT["AWS_REGION"]}
            boto3.Session().client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration=place)
            yield address
        finally:
            server.stop()


def bucket_at_hand(prefix: str) -> StoreAtHand:
    """Return a store in the bucket of `s3_service`, under a prefix that no other test has."""
    client: Any = boto3.Session().client("s3")

    def overwrite(ref: str, content: bytes | None) -> None:
        named = {"Bucket": BUCKET, "Key": f"{prefix}/{ref}"}
        client.delete_object(**named) if content is None else client.put_object(**named, Body=content)

    def add(name: str) -> None:
        for key in (name, f"{prefix}/{name}", f"{prefix}-other/{name}"):
            client.put_object(Bucket=BUCKET, Key=key, Body=b"no payload")

    return StoreAtHand(f"s3://{BUCKET}/{prefix}", overwrite, add)


async def list_entries(store: PayloadStore) -> list[tuple[str, int]]:
    return sorted([(entry.ref, entry.size_bytes) async for entry in store.list_payloads()])


async def entry_of(store: PayloadStore, ref: str) -> StoredPayload:
    (entry,) = [entry async for entry in store.list_payloads() if entry.ref == ref]
    return entry
