"""From the text of the setting to a store."""

from dagwright.store.bucket import BucketStore
from dagwright.store.folder import FolderStore
from dagwright.store.location import FolderLocation, parse_location
from dagwright.store.payloads import PayloadStore


def open_store(location: str) -> PayloadStore:
    """Returns the store at a location; it opens, makes and imports nothing before its first use.

    Args:
        location: a folder, or `s3://bucket/prefix`; credentials, region and endpoint of a bucket are those that
            boto3 finds by itself (`AWS_ACCESS_KEY_ID`, `AWS_PROFILE`, `AWS_ENDPOINT_URL_S3`, …).

    Raises:
        LocationInvalid: the text names no such place.
    """
    place = parse_location(location)
    return FolderStore(place.path) if isinstance(place, FolderLocation) else BucketStore(place)
