"""Parse the location of a payload store. The module does no I/O, so that the settings can use it for validation."""

import re
from dataclasses import dataclass
from pathlib import Path

from dagwright.store.errors import LocationInvalid

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
"""Bucket names that Amazon S3 permits; compatible services have the same rule."""
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()/-]*")
"""Characters that a key may contain without encoding (Amazon S3 user guide, object key names)."""
_MAX_PREFIX_BYTES = 900
"""A key has at most 1,024 bytes, including the reference after the prefix."""


@dataclass(frozen=True, slots=True)
class FolderLocation:
    """An absolute folder on a disk that all users of the store can access."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class BucketLocation:
    """A bucket and a key prefix without leading and trailing slashes; the prefix may be empty."""

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


def parse_location(text: str) -> FolderLocation | BucketLocation:
    """Parse a location. A relative folder is relative to the current folder.

    Raises:
        LocationInvalid: the text is not a location.
    """
    if not text.strip() or "\0" in text:
        raise LocationInvalid("it is empty; set a folder or s3://bucket/prefix")
    match = _SCHEME.match(text)
    if match is None:
        return FolderLocation(_absolute_path(text))
    scheme, rest = match[1].lower(), match[2]
    if scheme != "s3":
        raise LocationInvalid(f"unknown scheme {scheme}://; set a folder or s3://bucket/prefix")
    bucket, _, prefix = rest.partition("/")
    if _BUCKET.fullmatch(bucket) is None or ".." in bucket:
        raise LocationInvalid("a bucket name has 3 to 63 lower-case letters, digits, dots and hyphens")
    prefix = prefix.strip("/")
    if _PREFIX.fullmatch(prefix) is None or len(prefix) > _MAX_PREFIX_BYTES:
        raise LocationInvalid("the prefix may have at most 900 characters: letters, digits and !_.*'()/-")
    if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
        raise LocationInvalid("the prefix has an empty part, . or ..")
    return BucketLocation(bucket, prefix)


def _absolute_path(text: str) -> Path:
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise LocationInvalid("~ refers to a user without a home folder") from None
