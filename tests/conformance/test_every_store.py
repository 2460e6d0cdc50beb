"""Rules that apply to every payload store: one kit for the folder and for S3 (a real server on this machine)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from dagwright.store import CacheEntry, PayloadDamaged, PayloadMissing, StoreUnavailable, ref_of
from dagwright.store.payloads import STORE_ID
from tests.conformance.stores import StoreAtHand, bucket_at_hand, entry_of, folder_at_hand, list_entries, s3_service
from tests.support.eventually import eventually

pytestmark = pytest.mark.waits

ABSENT = ref_of(b"never put")
NOT_REFS = ["", "x", "sha256-", "../../etc/passwd", ABSENT.upper(), f"{ABSENT}\n", f"{ABSENT}/", f"sha512-{'0' * 64}"]


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with s3_service() as address:
        yield address


@pytest.fixture(params=["folder", "s3"])
def at_hand(request: pytest.FixtureRequest, tmp_path: Path) -> StoreAtHand:
    if request.param == "folder":
        return folder_at_hand(tmp_path / "some" / "payloads")
    request.getfixturevalue("service")
    return bucket_at_hand(f"tests/{uuid4().hex}")


@pytest.mark.parametrize("content", [b"", b"{}", bytes(range(256)) * 40, b"x" * 5_000_000], ids=len)
async def test_stored_value_is_returned_in_every_process(at_hand: StoreAtHand, content: bytes) -> None:
    ref = await at_hand.open().put(content)
    assert ref == ref_of(content)
    assert await at_hand.open().get(ref) == content
    assert await list_entries(at_hand.open()) == [(ref, len(content))]


async def test_store_is_empty_before_its_first_use(at_hand: StoreAtHand) -> None:
    assert await list_entries(at_hand.open()) == []
    assert await at_hand.open().delete(ABSENT, renewed_before=datetime.now(UTC)) is False


@pytest.mark.parametrize("ref", [ABSENT, *NOT_REFS])
async def test_value_that_was_never_stored_is_missing(at_hand: StoreAtHand, ref: str) -> None:
    store = at_hand.open()
    await store.put(b"something else")
    with pytest.raises(PayloadMissing) as actual:
        await store.get(ref)
    with pytest.raises(PayloadMissing) as renewed:
        await store.renew(ref)
    assert (actual.value.ref, renewed.value.ref) == (ref, ref)
    assert at_hand.location in str(actual.value)


async def test_same_content_is_kept_once(at_hand: StoreAtHand) -> None:
    refs = {await at_hand.open().put(b"same") for _ in range(3)}
    assert refs == {ref_of(b"same")}
    assert await list_entries(at_hand.open()) == [(ref_of(b"same"), 4)]


@pytest.mark.parametrize("harm", [b"longer than before", b"SAME LENGTH", b""])
async def test_damage_is_found_on_get_and_healed_by_put(at_hand: StoreAtHand, harm: bytes) -> None:
    store = at_hand.open()
    ref = await store.put(b"same length")
    at_hand.overwrite(ref, harm)
    with pytest.raises(PayloadDamaged) as damaged:
        await store.get(ref)
    assert damaged.value.ref == ref
    assert await store.put(b"same length") == ref
    assert await at_hand.open().get(ref) == b"same length"


async def test_removed_value_is_missing_and_can_be_stored_again(at_hand: StoreAtHand) -> None:
    store = at_hand.open()
    ref = await store.put(b"gone")
    at_hand.overwrite(ref, None)
    with pytest.raises(PayloadMissing):
        await store.get(ref)
    await store.put(b"gone")
    assert await store.get(ref) == b"gone"


async def test_put_and_renew_make_the_age_zero(at_hand: StoreAtHand) -> None:
    store = at_hand.open()
    ref = await store.put(b"content")
    first = (await entry_of(store, ref)).renewed_at
    assert abs(datetime.now(UTC) - first) < timedelta(seconds=30)
    for again in (lambda: store.put(b"content"), lambda: store.renew(ref)):
        before = (await entry_of(store, ref)).renewed_at

        async def is_renewed(again: Callable[[], Awaitable[object]] = again, before: datetime = before) -> bool:
            await again()
            return (await entry_of(store, ref)).renewed_at > before

        # S3 reports times in whole seconds, so the first time may be unchanged.
        await eventually(is_renewed)
    assert await store.get(ref) == b"content"


async def test_delete_removes_only_what_is_old_enough(at_hand: StoreAtHand) -> None:
    store = at_hand.open()
    ref = await store.put(b"content")
    renewed_at = (await entry_of(store, ref)).renewed_at
    assert await store.delete(ref, renewed_before=renewed_at) is False
    assert await store.get(ref) == b"content"
    assert await store.delete(ref, renewed_before=renewed_at + timedelta(seconds=1)) is True
    assert await list_entries(store) == []
    assert await store.delete(ref, renewed_before=renewed_at + timedelta(seconds=1)) is False


async def test_entries_report_only_payloads(at_hand: StoreAtHand) -> None:
    store = at_hand.open()
    refs = [await store.put(str(number).encode()) for number in range(40)]
    for name in ("note.txt", ABSENT[:-1], f"{ABSENT}.tmp"):
        at_hand.add(name)
    assert await list_entries(store) == sorted((ref, len(str(number))) for number, ref in enumerate(refs))


async def test_many_at_once_put_and_get_the_same_and_others(at_hand: StoreAtHand) -> None:
    stores = [at_hand.open() for _ in range(4)]
    contents = [bytes([number % 7]) * 20_000 for number in range(60)]

    async def put_and_get(number: int) -> bytes:
        ref = await stores[number % 4].put(contents[number])
        return await stores[(number + 1) % 4].get(ref)

    assert await asyncio.gather(*(put_and_get(number) for number in range(60))) == contents
    assert await list_entries(stores[0]) == sorted((ref_of(content), 20_000) for content in set(contents))


KEYS = ["0" * 64, "ab" * 32, "f" * 64]
LATER = datetime(2126, 1, 2, 3, 4, 5, tzinfo=UTC)


async def test_remembered_value_is_recalled_in_every_process_until_it_is_replaced(at_hand: StoreAtHand) -> None:
    first, second = KEYS[:2]
    await at_hand.open().put_cache_entry(first, b"old", expires_at=LATER)
    await at_hand.open().put_cache_entry(first, b"new", expires_at=LATER)
    await at_hand.open().put_cache_entry(second, b"", expires_at=LATER)
    assert [await at_hand.open().get_cache_entry(key) for key in KEYS] == [b"new", b"", None]
    assert await list_entries(at_hand.open()) == []
    assert await at_hand.open().owners() == frozenset()


async def test_remembered_value_is_reported_with_the_time_at_which_it_expires(at_hand: StoreAtHand) -> None:
    store = at_hand.open()
    assert [entry async for entry in store.cache_entries()] == []
    keys = [f"{number:064x}" for number in range(40)]
    for number, key in enumerate(keys):
        await store.put_cache_entry(key, b"x" * number, expires_at=LATER + timedelta(seconds=number))
    await store.put(b"a payload")
    actual = sorted([entry async for entry in store.cache_entries()], key=lambda one: one.key)
    assert actual == [CacheEntry(key, number, LATER + timedelta(seconds=number)) for number, key in enumerate(keys)]


async def test_only_what_has_expired_is_forgotten(at_hand: StoreAtHand) -> None:
    store, key = at_hand.open(), KEYS[0]
    assert await store.delete_cache_entry(key, expired_before=LATER) is False
    await store.put_cache_entry(key, b"content", expires_at=LATER)
    assert await store.delete_cache_entry(key, expired_before=LATER) is False
    assert await store.get_cache_entry(key) == b"content"
    assert await store.delete_cache_entry(key, expired_before=LATER + timedelta(seconds=1)) is True
    assert await store.get_cache_entry(key) is None
    assert await store.delete_cache_entry(key, expired_before=LATER + timedelta(seconds=1)) is False


async def test_owner_of_a_store_is_noted_once_and_is_no_payload(at_hand: StoreAtHand) -> None:
    assert await at_hand.open().owners() == frozenset()
    for owner in ("32049b68-7872-4094-8e63-d0dd59896a83", "b", "b"):
        await at_hand.open().claim(owner)
    assert await at_hand.open().owners() == {"32049b68-7872-4094-8e63-d0dd59896a83", "b"}
    assert await list_entries(at_hand.open()) == []


async def test_store_has_one_id_in_every_process_and_keeps_it(at_hand: StoreAtHand) -> None:
    first = set(await asyncio.gather(*(at_hand.open().identify() for _ in range(8))))
    await at_hand.open().put(b"content")
    assert len(first) == 1
    assert {await at_hand.open().identify()} == first
    assert await list_entries(at_hand.open()) == [(ref_of(b"content"), 7)]


async def test_store_that_loses_its_id_is_unavailable_to_those_that_knew_it(at_hand: StoreAtHand) -> None:
    store = at_hand.open()
    await store.identify()
    await store.check()
    at_hand.overwrite(STORE_ID, None)
    with pytest.raises(StoreUnavailable):
        await store.check()
    # Another process cannot know it.
    await at_hand.open().check()
