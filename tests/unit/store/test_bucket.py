"""The S3 store: object names, listing, and failures of the service and of boto3."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from dagwright.store import PayloadStore, StoreUnavailable, open_store, ref_of
from tests.conformance.stores import BUCKET, list_refs_and_sizes, s3_service

REF = ref_of(b"content")


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with s3_service() as address:
        yield address


@pytest.fixture
def store(service: str, request: pytest.FixtureRequest) -> PayloadStore:
    return open_store(f"s3://{BUCKET}/{request.node.name}")


async def _error_message(store: PayloadStore) -> str:
    messages = set()
    for call in (store.put(b"content"), store.get(REF)):
        with pytest.raises(StoreUnavailable) as error:
            await call
        messages.add(str(error.value))
    (message,) = messages
    return message


async def test_object_is_named_by_prefix_and_reference(store: PayloadStore, request: pytest.FixtureRequest) -> None:
    client = boto3.Session().client("s3")
    await store.put(b"content")
    stored_object = client.get_object(Bucket=BUCKET, Key=f"{request.node.name}/{REF}")
    assert stored_object["Body"].read() == b"content"
    client.create_bucket(Bucket="without-prefix", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    store_without_prefix = open_store("s3://without-prefix")
    await store_without_prefix.put(b"content")
    await store_without_prefix.claim("me")
    assert await list_refs_and_sizes(store_without_prefix) == [(REF, 7)]
    assert await store_without_prefix.owner_namespaces() == frozenset({"me"})


async def test_more_than_one_page_of_payloads_is_listed(store: PayloadStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagwright.store.bucket._PAGE_KEYS", 10)
    refs = await asyncio.gather(*(store.put(str(number).encode()) for number in range(25)))
    assert [ref for ref, _ in await list_refs_and_sizes(store)] == sorted(refs)


@pytest.mark.usefixtures("service")
async def test_unusable_service_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await _error_message(open_store("s3://no-such-bucket/x")) == (
        "the payload store s3://no-such-bucket/x does not exist: there is no such bucket; create it, or "
        "set another bucket in DAGWRIGHT_PAYLOAD_STORE"
    )
    with monkeypatch.context() as patch:
        patch.delenv("AWS_ACCESS_KEY_ID")
        patch.delenv("AWS_SECRET_ACCESS_KEY")
        assert await _error_message(open_store("s3://payloads/x")) == (
            "the payload store s3://payloads/x has no credentials: Unable to locate credentials; set AWS_ACCESS_KEY_ID "
            "and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        )
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setattr("dagwright.store.bucket._MAX_ATTEMPTS", 1)
    with pytest.raises(StoreUnavailable, match=r"does not respond: .*; check the network and AWS_ENDPOINT_URL_S3"):
        await open_store("s3://payloads/x").get(REF)


def test_boto3_is_not_imported_before_the_first_use(tmp_path: Path) -> None:
    program = (
        "import sys; from dagwright.store import open_store; open_store('s3://bucket/x'); open_store('folder'); "
        "print('boto3' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (result.stdout, list(tmp_path.iterdir())) == ("False\n", [])
