"""The store in S3: what its service and boto3 do to it."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from dagwright.store import PayloadStore, StoreUnavailable, open_store, ref_of
from tests.conformance.stores import BUCKET, listed, s3_service

REF = ref_of(b"content")


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with s3_service() as address:
        yield address


@pytest.fixture
def store(service: str, request: pytest.FixtureRequest) -> PayloadStore:
    return open_store(f"s3://{BUCKET}/{request.node.name}")


async def _sentence(store: PayloadStore) -> str:
    """Returns what putting and getting say, which must be the same."""
    sentences = set()
    for call in (store.put(b"content"), store.get(REF)):
        with pytest.raises(StoreUnavailable) as unavailable:
            await call
        sentences.add(str(unavailable.value))
    (sentence,) = sentences
    return sentence


async def test_object_is_named_by_prefix_and_reference(store: PayloadStore, request: pytest.FixtureRequest) -> None:
    await store.put(b"content")
    found = boto3.Session().client("s3").get_object(Bucket=BUCKET, Key=f"{request.node.name}/{REF}")
    assert found["Body"].read() == b"content"


async def test_store_at_the_top_of_a_bucket_works(service: str) -> None:
    boto3.Session().client("s3").create_bucket(
        Bucket="at-the-top", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
    )
    store = open_store("s3://at-the-top")
    await store.put(b"content")
    await store.claim("me")
    assert await listed(store) == [(REF, 7)]
    assert await store.owners() == {"me"}


async def test_more_than_one_page_of_payloads_is_listed(store: PayloadStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagwright.store.bucket._PAGE_KEYS", 10)
    refs = await asyncio.gather(*(store.put(str(number).encode()) for number in range(25)))
    assert [ref for ref, _ in await listed(store)] == sorted(refs)


async def test_bucket_that_is_not_there_is_told(service: str) -> None:
    assert await _sentence(open_store("s3://no-such-bucket/x")) == (
        "the payload store s3://no-such-bucket/x is not there: the service has no such bucket; make it, or "
        "name another in DAGWRIGHT_PAYLOAD_STORE"
    )


async def test_service_that_does_not_answer_is_told(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setattr("dagwright.store.bucket._ATTEMPTS", 1)
    store = open_store("s3://payloads/x")
    with pytest.raises(StoreUnavailable, match=r"does not answer: .*; check the network and AWS_ENDPOINT_URL_S3"):
        await store.get(REF)


async def test_missing_credentials_are_told(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert await _sentence(open_store("s3://payloads/x")) == (
        "the payload store s3://payloads/x has no credentials: Unable to locate credentials; set AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    )


def test_boto3_is_imported_by_the_first_use_alone(tmp_path: Path) -> None:
    program = (
        "import sys; from dagwright.store import open_store; open_store('s3://bucket/x'); open_store('folder'); "
        "print('boto3' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (ended.stdout, list(tmp_path.iterdir())) == ("False\n", [])
