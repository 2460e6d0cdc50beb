"""Where a payload store is, as the setting says it: pure, so that the settings can check it."""

import re
from dataclasses import dataclass
from pathlib import Path

from dagwright.store.errors import LocationInvalid

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
"""Names that Amazon gives out; others that speak S3 keep to them."""
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()/-]*")
"""Characters that a key may hold without being encoded anywhere (Amazon S3 user guide, object key names)."""
_PREFIX_BYTES = 900
"""A key has at most 1,024 bytes, and the reference comes behind the prefix."""


@dataclass(frozen=True, slots=True)
class FolderLocation:
    """A folder on a disk that everybody who uses the store can reach; absolute."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class BucketLocation:
    """A bucket and the prefix of the keys in it, without slashes at its ends; may be empty."""

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


def parse_location(text: str) -> FolderLocation | BucketLocation:
    """Returns the place that a text names; a relative folder is one below the current folder.

    Raises:
        LocationInvalid: it names none.
    """
    if not text.strip() or "\0" in text:
        raise LocationInvalid("it is empty; name a folder or s3://bucket/prefix")
    match = _SCHEME.match(text)
    if match is None:
        return FolderLocation(_absolute(text))
    scheme, rest = match[1].lower(), match[2]
    if scheme != "s3":
        raise LocationInvalid(f"{scheme}:// is not known; name a folder or s3://bucket/prefix")
    bucket, _, prefix = rest.partition("/")
    if _BUCKET.fullmatch(bucket) is None or ".." in bucket:
        raise LocationInvalid("the bucket's name has 3 to 63 small letters, digits, dots and hyphens")
    prefix = prefix.strip("/")
    if _PREFIX.fullmatch(prefix) is None or len(prefix) > _PREFIX_BYTES:
        raise LocationInvalid("the prefix may hold letters, digits and !_.*'()/- only, and no more than 900 of them")
    if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
        raise LocationInvalid("the prefix has an empty part, . or ..")
    return BucketLocation(bucket, prefix)


def _absolute(text: str) -> Path:
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise LocationInvalid("~ stands for a user who has no home folder here") from None
