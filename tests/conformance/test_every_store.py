"""Rules that apply to every payload store: the same tests for a folder and for S3 on a local server.

Each call of `StoreUnderTest.open` simulates another process, which opens the same store.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from dagwright.store import CacheEntry, PayloadDamaged, PayloadMissing, StoreUnavailable, ref_of
from dagwright.store.payloads import STORE_ID
from tests.conformance.stores import (
    StoreUnderTest,
    bucket_under_test,
    folder_under_test,
    list_refs_and_sizes,
    s3_service,
    stored_payload_of,
)
from tests.support.eventually import eventually

pytestmark = pytest.mark.waits

ABSENT_REF = ref_of(b"never put")
INVALID_REFS = [
    "",
    "x",
    "sha256-",
    "../../etc/passwd",
    ABSENT_REF.upper(),
    f"{ABSENT_REF}\n",
    f"{ABSENT_REF}/",
    f"sha512-{'0' * 64}",
]


@pytest.fixture(scope="module")
def s3_address() -> Iterator[str]:
    with s3_service() as address:
        yield address


@pytest.fixture(params=["folder", "s3"])
def store_under_test(request: pytest.FixtureRequest, tmp_path: Path) -> StoreUnderTest:
    if request.param == "folder":
        return folder_under_test(tmp_path / "some" / "payloads")
    request.getfixturevalue("s3_address")
    return bucket_under_test(f"tests/{uuid4().hex}")


@pytest.mark.parametrize("content", [b"", b"{}", bytes(range(256)) * 40, b"x" * 5_000_000], ids=len)
async def test_stored_content_is_returned_in_every_process(store_under_test: StoreUnderTest, content: bytes) -> None:
    ref = await store_under_test.open().put(content)
    assert ref == ref_of(content)
    assert await store_under_test.open().get(ref) == content
    assert await list_refs_and_sizes(store_under_test.open()) == [(ref, len(content))]


async def test_store_is_empty_before_its_first_use(store_under_test: StoreUnderTest) -> None:
    assert await list_refs_and_sizes(store_under_test.open()) == []
    assert await store_under_test.open().delete(ABSENT_REF, renewed_before=datetime.now(UTC)) is False


@pytest.mark.parametrize("ref", [ABSENT_REF, *INVALID_REFS])
async def test_unknown_or_invalid_reference_is_reported_as_missing(store_under_test: StoreUnderTest, ref: str) -> None:
    store = store_under_test.open()
    await store.put(b"something else")
    with pytest.raises(PayloadMissing) as get_error:
        await store.get(ref)
    with pytest.raises(PayloadMissing) as renew_error:
        await store.renew(ref)
    assert (get_error.value.ref, renew_error.value.ref) == (ref, ref)
    assert store_under_test.location in str(get_error.value)


@pytest.mark.parametrize("damaged_content", [b"longer than before", b"SAME LENGTH", b""])
async def test_damage_is_detected_by_get_and_repaired_by_put(
    store_under_test: StoreUnderTest, damaged_content: bytes
) -> None:
    store = store_under_test.open()
    ref = await store.put(b"same length")
    store_under_test.overwrite(ref, damaged_content)
    with pytest.raises(PayloadDamaged) as error:
        await store.get(ref)
    assert error.value.ref == ref
    assert await store.put(b"same length") == ref
    assert await store_under_test.open().get(ref) == b"same length"


async def test_removed_content_is_missing_and_can_be_stored_again(store_under_test: StoreUnderTest) -> None:
    store = store_under_test.open()
    ref = await store.put(b"gone")
    store_under_test.overwrite(ref, None)
    with pytest.raises(PayloadMissing):
        await store.get(ref)
    await store.put(b"gone")
    assert await store.get(ref) == b"gone"


async def test_put_and_renew_set_the_time_of_renewal_to_now(store_under_test: StoreUnderTest) -> None:
    store = store_under_test.open()
    ref = await store.put(b"content")
    first_renewal = (await stored_payload_of(store, ref)).renewed_at
    assert abs(datetime.now(UTC) - first_renewal) < timedelta(seconds=30)
    for renew in (lambda: store.put(b"content"), lambda: store.renew(ref)):
        previous_renewal = (await stored_payload_of(store, ref)).renewed_at

        async def renew_and_compare(
            renew: Callable[[], Awaitable[object]] = renew, previous_time: datetime = previous_renewal
        ) -> bool:
            await renew()
            return (await stored_payload_of(store, ref)).renewed_at > previous_time

        # S3 reports times in whole seconds, so the time may stay the same at first.
        await eventually(renew_and_compare)
    assert await store.get(ref) == b"content"


async def test_delete_removes_a_payload_only_if_it_was_renewed_before_the_given_time(
    store_under_test: StoreUnderTest,
) -> None:
    store = store_under_test.open()
    ref = await store.put(b"content")
    renewed_at = (await stored_payload_of(store, ref)).renewed_at
    assert await store.delete(ref, renewed_before=renewed_at) is False
    assert await store.get(ref) == b"content"
    assert await store.delete(ref, renewed_before=renewed_at + timedelta(seconds=1)) is True
    assert await list_refs_and_sizes(store) == []
    assert await store.delete(ref, renewed_before=renewed_at + timedelta(seconds=1)) is False


async def test_list_payloads_omits_foreign_entries(store_under_test: StoreUnderTest) -> None:
    store = store_under_test.open()
    refs = [await store.put(str(number).encode()) for number in range(40)]
    for name in ("note.txt", ABSENT_REF[:-1], f"{ABSENT_REF}.tmp"):
        store_under_test.add_foreign_entries(name)
    assert await list_refs_and_sizes(store) == sorted((ref, len(str(number))) for number, ref in enumerate(refs))


async def test_concurrent_puts_and_gets_return_their_contents(store_under_test: StoreUnderTest) -> None:
    stores = [store_under_test.open() for _ in range(4)]
    contents = [bytes([number % 7]) * 20_000 for number in range(60)]

    async def put_and_get(number: int) -> bytes:
        ref = await stores[number % 4].put(contents[number])
        return await stores[(number + 1) % 4].get(ref)

    assert await asyncio.gather(*(put_and_get(number) for number in range(60))) == contents
    assert await list_refs_and_sizes(stores[0]) == sorted((ref_of(content), 20_000) for content in set(contents))


CACHE_KEYS = ["0" * 64, "ab" * 32, "f" * 64]
EXPIRY = datetime(2126, 1, 2, 3, 4, 5, tzinfo=UTC)


async def test_cache_entry_is_shared_by_processes_and_can_be_replaced(store_under_test: StoreUnderTest) -> None:
    first_key, second_key = CACHE_KEYS[:2]
    await store_under_test.open().put_cache_entry(first_key, b"old", expires_at=EXPIRY)
    await store_under_test.open().put_cache_entry(first_key, b"new", expires_at=EXPIRY)
    await store_under_test.open().put_cache_entry(second_key, b"", expires_at=EXPIRY)
    assert [await store_under_test.open().get_cache_entry(key) for key in CACHE_KEYS] == [b"new", b"", None]
    assert await list_refs_and_sizes(store_under_test.open()) == []
    assert await store_under_test.open().owner_namespaces() == frozenset()


async def test_cache_entries_are_listed_with_size_and_expiry(store_under_test: StoreUnderTest) -> None:
    store = store_under_test.open()
    assert [entry async for entry in store.cache_entries()] == []
    keys = [f"{number:064x}" for number in range(40)]
    for number, key in enumerate(keys):
        await store.put_cache_entry(key, b"x" * number, expires_at=EXPIRY + timedelta(seconds=number))
    await store.put(b"a payload")
    actual = sorted([entry async for entry in store.cache_entries()], key=lambda entry: entry.key)
    assert actual == [CacheEntry(key, number, EXPIRY + timedelta(seconds=number)) for number, key in enumerate(keys)]


async def test_only_expired_cache_entries_are_deleted(store_under_test: StoreUnderTest) -> None:
    store, key = store_under_test.open(), CACHE_KEYS[0]
    assert await store.delete_cache_entry(key, expired_before=EXPIRY) is False
    await store.put_cache_entry(key, b"content", expires_at=EXPIRY)
    assert await store.delete_cache_entry(key, expired_before=EXPIRY) is False
    assert await store.get_cache_entry(key) == b"content"
    assert await store.delete_cache_entry(key, expired_before=EXPIRY + timedelta(seconds=1)) is True
    assert await store.get_cache_entry(key) is None
    assert await store.delete_cache_entry(key, expired_before=EXPIRY + timedelta(seconds=1)) is False


async def test_each_owner_is_recorded_once_and_is_not_a_payload(store_under_test: StoreUnderTest) -> None:
    assert await store_under_test.open().owner_namespaces() == frozenset()
    for owner in ("32049b68-7872-4094-8e63-d0dd59896a83", "b", "b"):
        await store_under_test.open().claim(owner)
    assert await store_under_test.open().owner_namespaces() == {"32049b68-7872-4094-8e63-d0dd59896a83", "b"}
    assert await list_refs_and_sizes(store_under_test.open()) == []


async def test_all_processes_read_the_same_permanent_store_id(store_under_test: StoreUnderTest) -> None:
    ids = set(await asyncio.gather(*(store_under_test.open().identify() for _ in range(8))))
    await store_under_test.open().put(b"content")
    assert len(ids) == 1
    assert {await store_under_test.open().identify()} == ids
    assert await list_refs_and_sizes(store_under_test.open()) == [(ref_of(b"content"), 7)]


async def test_store_that_lost_its_id_is_unavailable_to_processes_that_have_read_it(
    store_under_test: StoreUnderTest,
) -> None:
    store = store_under_test.open()
    await store.identify()
    await store.check()
    store_under_test.overwrite(STORE_ID, None)
    with pytest.raises(StoreUnavailable):
        await store.check()
    # A new process has not read the lost ID.
    await store_under_test.open().check()
