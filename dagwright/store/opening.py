"""Open the store at a location."""

from pathlib import Path

from dagwright.store.bucket import BucketStore
from dagwright.store.folder import FolderStore
from dagwright.store.location import FolderLocation, parse_location
from dagwright.store.payloads import PayloadStore


def open_store(location: str, *, state_dir: Path | None = None) -> PayloadStore:
    """Return the store at a location. Nothing is opened, created or imported before the first use of the store.

    Args:
        location: a folder, or `s3://bucket/prefix`; boto3 finds the credentials, region and endpoint of a bucket
            (`AWS_ACCESS_KEY_ID`, `AWS_PROFILE`, `AWS_ENDPOINT_URL_S3`, …).
        state_dir: the state folder; only its owner can read a store inside it.

    Raises:
        LocationInvalid: the text is not a location.
    """
    store_location = parse_location(location)
    if not isinstance(store_location, FolderLocation):
        return BucketStore(store_location)
    is_private = state_dir is not None and store_location.path.resolve().is_relative_to(state_dir.resolve())
    return FolderStore(store_location.path, is_private=is_private)
