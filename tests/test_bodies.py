"""Bodies come back byte for byte from every store, never cross tenants, and failures never show a secret."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import socket
import stat
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_blackboard.config import Settings
from otel_blackboard.exporter import folder_store, packs
from otel_blackboard.exporter.bodies import (
    BodyDamaged,
    BodyError,
    BodyMissing,
    BodyStore,
    BodyStoreError,
    InvalidKey,
    StoredObject,
    is_key,
)
from otel_blackboard.exporter.body_stores import open_body_store
from otel_blackboard.exporter.folder_store import FolderStore
from otel_blackboard.exporter.packs import (
    FooterEntry,
    blank_frames,
    footer_entries,
    merge_frames,
    pack,
    pack_key,
    read_bodies,
    read_body,
    read_footer,
    ulid,
    write_packs,
)
from otel_blackboard.exporter.s3_store import S3Store, parse_s3_url
from otel_blackboard.records import Body, Content, Frame, Tenant
from tests.servers import SECRET_KEY
from tests.servers.minio_server import find_minio, minio_server
from tests.servers.seaweedfs import find_weed, seaweedfs

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

DAY = date(2026, 3, 14)
ACME = Tenant("acme", "default")


class MemoryStore:
    """The interface over a dict, and the requests it got: the oracle for what only concerns packs."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.gets: list[tuple[str, int, int]] = []

    def put(self, key: str, data: bytes) -> None:
        self.objects[key] = data

    def get(self, key: str, offset: int, length: int) -> bytes:
        self.gets.append((key, offset, length))
        if key not in self.objects:
            raise BodyMissing(key)
        return self.objects[key][offset : offset + length]

    def delete(self, key: str) -> None:
        self.objects.pop(key, None)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        for key, data in self.objects.items():
            if key.startswith(prefix):
                yield StoredObject(key, len(data), datetime.now(UTC))

    def check(self) -> None:
        """Memory is always there."""


Opener = Callable[[], BodyStore]


on_s3 = pytest.mark.parametrize("opener", ["seaweedfs", "minio"], indirect=True, scope="module")
"""For what a folder does not have: a secret, a bucket."""


@pytest.fixture(scope="module", params=["folder", "seaweedfs", "minio"])
def opener(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opener]:
    """Opens an empty store of its kind, each time another one."""
    folder = tmp_path_factory.mktemp(request.param)
    counter = itertools.count()
    if request.param == "folder":
        yield lambda: FolderStore(folder / str(next(counter)))
        return
    found, server = {"seaweedfs": (find_weed(), seaweedfs), "minio": (find_minio(), minio_server)}[request.param]
    if found is None:
        pytest.skip(f"not on this machine: no binary of {request.param}")
    with server(folder) as url:
        yield lambda: S3Store(f"{url}/prefix/{next(counter)}", "us-east-1")


@pytest.fixture
def store(opener: Opener) -> BodyStore:
    opened = opener()
    opened.check()
    return opened


def content(data: bytes, *, kind: str = "span", tenant: Tenant = ACME, span: str = "1", **values: Any) -> Content:
    given = {"trace_id": "t" * 32, "span_id": span, "field": "gen_ai.tool.call.result", **values}
    return Content(tenant=tenant, kind=kind, data=data, **given)


# Stores


def test_a_range_is_exactly_those_bytes(store: BodyStore) -> None:
    data = bytes(range(256)) * 40
    store.put("a/b/c.pack", data)
    for offset, length in [(0, 1), (0, len(data)), (255, 2), (10_000, 240), (7, 5_000), (0, 0), (9, 0)]:
        assert store.get("a/b/c.pack", offset, length) == data[offset : offset + length]
    assert store.get("a/b/c.pack", 10_239, 50) == data[10_239:]
    assert store.get("a/b/c.pack", 10_240, 50) == b""
    assert store.get("a/b/c.pack", 99_999, 1) == b""
    for offset, length in [(-1, 5), (0, -1)]:
        with pytest.raises(ValueError, match="range"):
            store.get("a/b/c.pack", offset, length)


def test_an_object_above_the_part_size_of_s3_is_stored_whole(store: BodyStore) -> None:
    data = os.urandom(1 << 20) * 7
    store.put("a/large.pack", data)
    assert store.get("a/large.pack", 0, len(data)) == data
    assert store.get("a/large.pack", 5 * (1 << 20) - 3, 7) == data[5 * (1 << 20) - 3 :][:7]
    assert [found.size for found in store.list("")] == [len(data)]


def test_what_is_not_there_is_missing(store: BodyStore) -> None:
    store.put("a/b/c.pack", b"x")
    for key in ("nothing", "a/b/d.pack", "a/b", "a/b/c.pack/d"):
        for length in (0, 1):
            with pytest.raises(BodyMissing) as caught:
                store.get(key, 0, length)
            assert caught.value.key == key
            assert key in str(caught.value)


def test_delete_removes_and_is_content_when_nothing_is_there(store: BodyStore) -> None:
    store.put("a/b/c.pack", b"x")
    store.put("a/d/e.pack", b"y")
    for _ in range(2):
        store.delete("a/b/c.pack")
        store.delete("never/was")
    with pytest.raises(BodyMissing):
        store.get("a/b/c.pack", 0, 1)
    assert store.get("a/d/e.pack", 0, 1) == b"y"
    assert [found.key for found in store.list("")] == ["a/d/e.pack"]


def test_list_gives_key_size_and_time_of_everything_below_a_prefix(store: BodyStore) -> None:
    keys = [
        f"acme/{project}/span/2026-03-{day:02}/{n}.pack" for project in ("p", "p2") for day in (1, 10) for n in range(3)
    ]
    for size, key in enumerate(keys):
        store.put(key, b"x" * (size + 1))
    listed = {found.key: found for found in store.list("")}
    assert sorted(listed) == sorted(keys)
    assert [listed[key].size for key in keys] == [size + 1 for size in range(len(keys))]
    assert all(abs(found.modified - datetime.now(UTC)) < timedelta(minutes=5) for found in listed.values())
    for prefix in (
        "acme/",
        "acme/p",
        "acme/p/",
        "acme/p2/span/2026-03-1",
        "acme/p/span/2026-03-01/1.pack",
        "b",
        "acme/x/",
    ):
        assert sorted(found.key for found in store.list(prefix)) == sorted(
            key for key in keys if key.startswith(prefix)
        )


def test_more_objects_than_one_page_of_a_listing(store: BodyStore) -> None:
    keys = {f"many/{n:04}" for n in range(1005)}
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: store.put(key, b"x"), keys))
    assert {found.key for found in store.list("many/")} == keys


@pytest.mark.parametrize(
    "key",
    ["", "/", "/etc/passwd", "..", "../x", "a/../b", "a/..", "a//b", "a/", "./a", "a/./b", ".hidden", "a/.incoming",
     "a b", "a\\b", "a\0b", "a\n", "é", "a%2e%2e/b", "a?b", "a" * 4096, "/".join("abcdefghijklmnopq"), "C:x"],
)  # fmt: skip
def test_keys_that_could_lead_elsewhere_are_refused(store: BodyStore, key: str) -> None:
    for action in (
        lambda: store.put(key, b"x"),
        lambda: store.get(key, 0, 1),
        lambda: store.delete(key),
    ):
        with pytest.raises(InvalidKey):
            action()
    assert list(store.list("")) == []


@pytest.mark.parametrize("prefix", ["/", "..", "../", "a/../", "a//", ".", "a/.", "a b"])
def test_prefixes_that_could_lead_elsewhere_are_refused(store: BodyStore, prefix: str) -> None:
    with pytest.raises(InvalidKey):
        list(store.list(prefix))


def test_readers_see_the_old_object_or_the_new_one_whole(store: BodyStore) -> None:
    versions = [bytes([n]) * 400_000 for n in range(6)]
    store.put("a/b.pack", versions[0])
    done = threading.Event()
    seen: set[bytes] = set()

    def read() -> None:
        while not done.is_set():
            data = store.get("a/b.pack", 0, 400_000)
            assert len(set(data)) == 1
            assert len(data) == 400_000
            seen.add(data[:1])

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        for version in versions * 3:
            store.put("a/b.pack", version)
        done.set()
        for reader in readers:
            reader.result()
    assert seen <= {version[:1] for version in versions}
    assert store.get("a/b.pack", 0, 400_000) == versions[-1]


def test_putting_and_deleting_in_one_folder_at_once_loses_nothing(store: BodyStore) -> None:
    def work(number: int) -> None:
        for _ in range(15):
            store.put(f"a/b/c/{number}", b"x")
            assert store.get(f"a/b/c/{number}", 0, 1) == b"x"
            store.delete(f"a/b/c/{number}")
        store.put(f"a/b/c/{number}", b"y")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert sorted(found.key for found in store.list("a/b/c/")) == [f"a/b/c/{number}" for number in range(8)]


def test_check_leaves_nothing_behind(store: BodyStore) -> None:
    store.check()
    assert list(store.list("")) == []


def test_open_body_store_follows_the_settings(tmp_path: Path) -> None:
    folder = open_body_store(Settings(data=tmp_path))
    assert isinstance(folder, FolderStore)
    folder.put("a/b", b"x")
    assert (tmp_path / "bodies" / "a" / "b").read_bytes() == b"x"
    s3 = open_body_store(Settings(s3="https://key:secret@s3.example.com/bucket/some/prefix"))
    assert repr(s3) == "S3Store('https://s3.example.com/bucket/some/prefix')"


# The folder


def test_files_and_folders_are_private(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "data" / "bodies")
    store.put("a/b/c.pack", b"x")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in store._root.rglob("*")}
    assert modes == {".incoming": 0o700, "a": 0o700, "b": 0o700, "c.pack": 0o600}
    assert stat.S_IMODE(store._root.stat().st_mode) == 0o700


def test_empty_folders_go_with_their_last_object(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("a/b/c.pack", b"x")
    store.put("a/d.pack", b"x")
    store.delete("a/b/c.pack")
    assert {path.name for path in tmp_path.iterdir()} == {".incoming", "a"}
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"d.pack"}


def test_a_full_disk_is_said_and_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore(tmp_path)
    store.put("a/b.pack", b"old")
    real = os.open
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lambda path, *rest: real("/dev/full", os.O_WRONLY))
        with pytest.raises(BodyStoreError, match=r"cannot write 'a/b.pack': No space left on device"):
            store.put("a/b.pack", b"new")
    assert store.get("a/b.pack", 0, 3) == b"old"
    assert list((tmp_path / ".incoming").iterdir()) == []


def test_a_file_that_cannot_be_moved_is_said_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FolderStore(tmp_path)
    store.put("a/b.pack", b"old")

    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(BodyStoreError, match=r"cannot write 'a/b.pack': Permission denied"):
        store.put("a/b.pack", b"new")
    assert store.get("a/b.pack", 0, 3) == b"old"
    assert list((tmp_path / ".incoming").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_said_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = FolderStore(tmp_path / "file" / "bodies")
    with pytest.raises(BodyStoreError, match="BLACKBOARD_DATA"):
        store.check()
    with pytest.raises(BodyStoreError):
        store.put("a/b", b"x")
    with pytest.raises(BodyMissing):
        store.get("a/b", 0, 1)
    assert list(store.list("")) == []


def test_half_written_files_of_a_crash_are_cleared(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("a/b", b"x")
    old, new = tmp_path / ".incoming" / "old", tmp_path / ".incoming" / "new"
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    long_ago = time.time() - 2 * folder_store._STALE
    os.utime(old, (long_ago, long_ago))
    assert [found.key for found in store.list("")] == ["a/b"]
    store.check()
    assert not old.exists()
    assert new.exists()


def test_links_are_not_followed_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x.pack").write_bytes(b"x")
    store = FolderStore(tmp_path / "bodies")
    store.put("a/b", b"x")
    (tmp_path / "bodies" / "link").symlink_to(tmp_path / "outside")
    assert [found.key for found in store.list("")] == ["a/b"]


# S3


@pytest.mark.parametrize("name", ["access", "s/ec:r@e t%é"])
def test_the_url_is_split_and_its_credentials_are_decoded(name: str) -> None:
    location = parse_s3_url(f"https://{quote(name, '')}:{quote(name, '')}@[::1]:9000/bucket/some/prefix/")
    assert location == ("[::1]:9000", True, name, name, "bucket", "some/prefix/")
    assert parse_s3_url("http://a:b@host/bucket")[0] == "host"


@pytest.mark.parametrize(
    "url",
    ["ftp://key:SECRET@host/bucket", "SECRET", "http://host/bucket", "http://key@host/bucket", "http://:SECRET@host/bucket",
     "http://key:SECRET@/bucket", "http://key:SECRET@host", "http://key:SECRET@host/", "http://key:SECRET@host:x/bucket",
     "http://key:SEC/RET@host/bucket", "http://key:12/SECRET@host/bucket", "http://key:SEC?RET@host/bucket",
     "http://key:SEC#RET@host/bucket", "http://key:SECRET@host/No_Bucket", "http://key:SECRET@host/bucket/../x",
     "http://key:SECRET@[::1/bucket", "http://key:SECRET@host/bucket?SECRET", "http://key:SECRET@host:99999/bucket"],
)  # fmt: skip
def test_a_url_that_cannot_be_read_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(ValueError, match="BLACKBOARD_S3 must be") as caught:
        S3Store(url, "us-east-1")
    shown = "".join(traceback.format_exception(caught.value))
    assert not re.search("SECRET|SEC|RET", shown.replace("secret", "").partition("BLACKBOARD_S3 must be")[2])


def test_a_location_does_not_show_its_credentials() -> None:
    assert "SECRET" not in repr(parse_s3_url("http://ACCESS:SECRET@host/bucket")) + str(
        S3Store("http://a:SECRET@h/bucket", "")
    )


def failing_calls(store: BodyStore) -> list[Callable[[], object]]:
    return [
        store.check,
        lambda: store.put("a/b", b"x"),
        lambda: store.get("a/b", 0, 1),
        lambda: store.get("a/b", 0, 0),
        lambda: list(store.list("a")),
        lambda: store.delete("a/b"),
    ]


@on_s3
def test_no_failure_shows_a_secret(opener: Opener) -> None:
    """Wrong secret, unknown access key, host that refuses: every message and every traceback, causes included."""
    store = opener()
    assert isinstance(store, S3Store)
    right = store._client._base_url.host
    secrets = [SECRET_KEY, "wr0ng/secret", quote(SECRET_KEY, ""), quote("wr0ng/secret", "")]
    for access, host in (("blackboard-test", right), ("n0body", right), ("n0body", "127.0.0.1:1")):
        wrong = S3Store(f"http://{access}:{quote('wr0ng/secret', '')}@{host}/bodies", "us-east-1")
        for call in failing_calls(wrong):
            started = time.monotonic()
            with pytest.raises(BodyStoreError) as caught:
                call()
            assert time.monotonic() - started < 5
            shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(wrong)
            assert host in str(caught.value)
            assert not any(secret in shown for secret in secrets)


@on_s3
def test_check_says_what_to_do_about_a_wrong_secret(opener: Opener) -> None:
    store = opener()
    assert isinstance(store, S3Store)
    wrong = S3Store(f"http://blackboard-test:wrong@{store._client._base_url.host}/bodies", "us-east-1")
    with pytest.raises(BodyStoreError, match="correct the secret key in BLACKBOARD_S3"):
        wrong.check()


@on_s3
def test_check_makes_the_bucket(opener: Opener) -> None:
    store = opener()
    assert isinstance(store, S3Store)
    url = f"http://blackboard-test:{quote(SECRET_KEY, '')}@{store._client._base_url.host}/bucket-{time.time_ns()}"
    missing = S3Store(url, "us-east-1")
    with pytest.raises(BodyStoreError):
        missing.get("a/b", 0, 1)
    missing.check()
    with pytest.raises(BodyMissing):
        missing.get("a/b", 0, 1)


def test_a_host_that_says_nothing_is_given_up_after_one_read_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = S3Store(f"http://a:b@127.0.0.1:{silent.getsockname()[1]}/bucket", "us-east-1", timeout=0.5)
        started = time.monotonic()
        with pytest.raises(BodyStoreError, match="Read timed out"):
            store.put("a/b", b"x")
        assert time.monotonic() - started < 1.5


def test_an_outage_ends_when_the_server_is_back(tmp_path: Path) -> None:
    if find_minio() is None:
        pytest.skip("not on this machine: no binary of minio")
    with minio_server(tmp_path) as url:
        store = S3Store(url, "us-east-1")
        store.put("a/b", b"kept")
    with pytest.raises(BodyStoreError, match="is the server running"):
        store.put("a/c", b"x")
    with minio_server(tmp_path, port=int(url.rpartition(":")[2].partition("/")[0])):
        assert store.get("a/b", 0, 4) == b"kept"


# Keys of packs


def test_ulids_are_ordered_by_time_and_all_different() -> None:
    early, late = ulid(1_000), ulid(1_001)
    assert early < late
    assert re.fullmatch("[0-9a-hjkmnp-tv-z]{26}", early)
    assert ulid(0).startswith("0" * 10)
    assert ulid(2**48 - 1).startswith("7zzzzzzzzz")
    assert len({ulid(5) for _ in range(1000)}) == 1000


@given(
    st.text(max_size=80) | st.sampled_from(["..", "a/b", "a b", "A", "x" * 4096, "", "x" + "0" * 64, "a\n", "\ud800"])
)
def test_every_id_gives_a_safe_key_part_and_no_two_give_the_same(text: str) -> None:
    part = packs.key_part(text)
    assert is_key(pack_key(Tenant(text, text), text, DAY, ulid()))
    assert "/" not in part
    assert packs.key_part(part) == part or part.startswith("x")
    if part != text:
        assert len(part) == 65 and part != packs.key_part(text + "x")


def test_a_key_names_organization_project_kind_and_day() -> None:
    assert pack_key(Tenant("acme", "My Project"), "llm_prompt", DAY, "01j") == (
        f"acme/x{hashlib.sha256(b'My Project').hexdigest()}/llm_prompt/2026-03-14/01j.pack"
    )


# Packs


contents = st.lists(
    st.builds(
        Content,
        tenant=st.builds(Tenant, st.sampled_from(["a", "b", "../a"]), st.sampled_from(["p", "P q"])),
        kind=st.sampled_from(["span", "tool_result", "llm_prompt"]),
        trace_id=st.text("0123456789abcdef", max_size=32),
        span_id=st.sampled_from(["", "1" * 16, "2" * 16]),
        field=st.text(max_size=20),
        data=st.binary(max_size=300) | st.sampled_from([b"", b"same", b"\0" * 100, b"word " * 5000]),
        encoding=st.sampled_from(["text", "json", "pairs", "bytes"]),
    ),
    max_size=30,
)


@given(contents, st.randoms(), st.sampled_from([1, 3, 9]))
@settings(deadline=None)
def test_whatever_is_packed_is_read_back_exactly_in_any_order(given: list[Content], random: Any, level: int) -> None:
    store = MemoryStore()
    made = pack(given, DAY, level)
    write_packs(store, made.packs)
    assert len(made.bodies) == len(given)
    for one, body in zip(given, made.bodies, strict=True):
        assert (body.field, body.raw_length, body.encoding) == (one.field, len(one.data), one.encoding)
        assert body.sha256 == hashlib.sha256(one.data).hexdigest()
    order = list(range(len(given)))
    random.shuffle(order)
    assert [read_body(store, made.bodies[n]) for n in order] == [given[n].data for n in order]
    assert read_bodies(store, [made.bodies[n] for n in order]) == [given[n].data for n in order]


@given(contents)
@settings(deadline=None)
def test_the_footer_names_every_user_of_every_frame(given: list[Content]) -> None:
    store = MemoryStore()
    made = pack(given, DAY)
    write_packs(store, made.packs)
    named = {(one.key, entry) for one in made.packs for entry in read_footer(store, one.key, len(one.data))}
    users = set()
    for one, body in zip(given, made.bodies, strict=True):
        frame = body.frames[0]
        entry = FooterEntry(frame.offset, frame.length, len(one.data), one.trace_id, one.span_id, one.field)
        users.add((frame.object, entry))
    assert named == users
    assert all(footer_entries(one.data) == read_footer(store, one.key, len(one.data)) for one in made.packs)


def test_bodies_round_trip_through_every_store(store: BodyStore) -> None:
    given = [content(f"{n} ".encode() * 700, kind=f"kind{n % 5}", span=str(n)) for n in range(100)]
    made = pack(given, DAY)
    assert len(made.packs) == 5
    with ThreadPoolExecutor(4) as pool:
        write_packs(store, made.packs, pool)
        assert read_bodies(store, made.bodies, pool) == [one.data for one in given]
    assert read_bodies(store, made.bodies) == [one.data for one in given]
    assert read_body(store, made.bodies[37]) == given[37].data
    for found in store.list("acme/default/"):
        assert len(read_footer(store, found.key, found.size)) == 20


def test_equal_ids_in_two_organizations_never_share_a_pack() -> None:
    tenants = [Tenant("a", "p"), Tenant("b", "p"), Tenant("a", "q"), Tenant("a/p", ""), Tenant("A", "p")]
    made = pack([content(b"the same secret", tenant=tenant) for tenant in tenants], DAY)
    assert len({body.frames[0].object for body in made.bodies}) == len(tenants)
    assert len({one.key.rpartition("/")[0] for one in made.packs}) == len(tenants)


def test_identical_contents_of_one_pack_are_stored_once() -> None:
    large = os.urandom(10_000)
    made = pack([content(large, span=str(n)) for n in range(50)], DAY)
    assert len(made.packs[0].data) < 12_000
    assert len({body.frames for body in made.bodies}) == 1
    assert len(footer_entries(made.packs[0].data)) == 50


def test_a_footer_longer_than_the_first_read_is_read_whole() -> None:
    store = MemoryStore()
    given = [content(b"x", span=os.urandom(8).hex(), trace_id=os.urandom(16).hex()) for _ in range(6000)]
    made = pack(given, DAY)
    write_packs(store, made.packs)
    entries = read_footer(store, made.packs[0].key, len(made.packs[0].data))
    assert [entry.span_id for entry in entries] == [one.span_id for one in given]
    assert len(store.gets) == 2


def test_near_frames_are_fetched_together_and_far_ones_apart() -> None:
    frames = [
        Frame("a", 0, 10),
        Frame("a", 10, 10),
        Frame("a", 65_000, 5),
        Frame("a", 65_005 + 65_536, 1),
        Frame("b", 0, 9),
    ]
    assert merge_frames(reversed(frames)) == [frames[:3], frames[3:4], frames[4:]]
    store = MemoryStore()
    made = pack([content(os.urandom(900), span=str(n)) for n in range(100)], DAY)
    write_packs(store, made.packs)
    read_bodies(store, made.bodies)
    assert len(store.gets) == 1
    assert read_bodies(store, []) == []


def test_a_body_of_several_frames_is_their_concatenation() -> None:
    store = MemoryStore()
    made = pack([content(b"first "), content(b"second")], DAY)
    write_packs(store, made.packs)
    raw = b"first second"
    frames = tuple(body.frames[0] for body in made.bodies)
    assert read_body(store, Body("f", frames, len(raw), hashlib.sha256(raw).hexdigest())) == raw


class Failing(MemoryStore):
    def put(self, key: str, data: bytes) -> None:
        if "/bad/" in key:
            raise BodyStoreError("memory", "write", key, "out of memory")
        time.sleep(0.05)
        super().put(key, data)


@pytest.mark.parametrize("threads", [0, 4])
def test_a_pack_that_cannot_be_put_fails_the_whole_write(threads: int) -> None:
    store = Failing()
    made = pack([content(b"x", kind=kind) for kind in ("one", "bad", "two")], DAY)
    with ThreadPoolExecutor(threads or 1) as pool, pytest.raises(BodyStoreError, match="out of memory"):
        write_packs(store, made.packs, pool if threads else None)
    # With a pool the others have ended: nothing is put after the failure was reported.
    assert len(store.objects) == (2 if threads else 1)


# Damage


def packed(*datas: bytes) -> tuple[MemoryStore, str, list[Body]]:
    store = MemoryStore()
    made = pack([content(data, span=str(n), field=f"field-{n}") for n, data in enumerate(datas)], DAY)
    write_packs(store, made.packs)
    return store, made.packs[0].key, made.bodies


@given(st.data())
@settings(deadline=None, max_examples=200)
def test_a_changed_byte_never_gives_wrong_content(data: st.DataObject) -> None:
    original = b"some text that compresses, some text that does" * 20
    store, key, bodies = packed(original, b"another")
    changed = bytearray(store.objects[key])
    position = data.draw(st.integers(0, len(changed) - 1))
    changed[position] ^= data.draw(st.integers(1, 255))
    store.objects[key] = bytes(changed)
    try:
        assert read_body(store, bodies[0]) == original
    except BodyError as error:
        assert isinstance(error, BodyDamaged | BodyMissing)
        assert key in str(error)
    try:
        read_footer(store, key, len(changed))
    except BodyDamaged as error:
        assert key in str(error)


def test_damage_names_object_and_field() -> None:
    store, key, bodies = packed(b"first content", b"second content")
    wrong = {
        "sha256": Body("field-0", bodies[0].frames, 13, "0" * 64),
        "longer than 12": Body("field-0", bodies[0].frames, 12, bodies[0].sha256),
        "13 bytes, not 14": Body("field-0", bodies[0].frames, 14, bodies[0].sha256),
        "frame at 3": Body("field-0", (Frame(key, 3, 9),), 13, bodies[0].sha256),
        "follows": Body("field-0", (Frame(key, 0, bodies[0].frames[0].length + 2),), 13, bodies[0].sha256),
        "incomplete": Body("field-0", (Frame(key, 0, 8),), 13, bodies[0].sha256),
        "object ends": Body("field-0", (Frame(key, 0, 10**6),), 13, bodies[0].sha256),
    }
    for detail, body in wrong.items():
        with pytest.raises(BodyDamaged, match=detail) as caught:
            read_body(store, body)
        assert key in str(caught.value)
        assert "'field-0'" in str(caught.value)
    with pytest.raises(BodyMissing):
        read_body(store, Body("f", (Frame("acme/none.pack", 0, 5),), 5, ""))


def test_a_bomb_is_not_decompressed() -> None:
    bomb = zstd.compress(bytes(1 << 28))
    store = MemoryStore()
    store.objects["a/bomb"] = bomb
    started = time.monotonic()
    with pytest.raises(BodyDamaged, match="longer than 100 bytes"):
        read_body(store, Body("f", (Frame("a/bomb", 0, len(bomb)),), 100, "0" * 64))
    pack_of_it = bomb + len(bomb).to_bytes(8, "little") + packs.MAGIC
    store.objects["a/bomb"] = pack_of_it
    with pytest.raises(BodyDamaged, match="footer"):
        read_footer(store, "a/bomb", len(pack_of_it))
    assert time.monotonic() - started < 2


def tail(footer: bytes, length: int | None = None, magic: bytes = packs.MAGIC) -> bytes:
    return footer + (len(footer) if length is None else length).to_bytes(8, "little") + magic


@pytest.mark.parametrize(
    "data",
    [b"", b"x", packs.MAGIC, tail(b"", magic=b"BBPACK02"), tail(b"abc"), tail(b"", length=5), tail(b"", length=2**63),
     tail(zstd.compress(b"not json")), tail(zstd.compress(b"[]")), tail(zstd.compress(b"{}")),
     tail(zstd.compress(b'{"o":"0","l":0,"r":0,"t":"","s":"","f":""}')),
     tail(zstd.compress(b'{"o":0,"l":0,"r":0,"t":null,"s":"","f":""}')),
     tail(zstd.compress(b'{"o":-1,"l":1,"r":0,"t":"","s":"","f":""}')),
     tail(zstd.compress(b'{"o":0,"l":999,"r":0,"t":"","s":"","f":""}'))],
)  # fmt: skip
def test_what_is_no_pack_is_damaged(data: bytes) -> None:
    store = MemoryStore()
    store.objects["a/b.pack"] = data
    with pytest.raises(BodyDamaged, match=r"a/b.pack"):
        read_footer(store, "a/b.pack", len(data))


# Deletion


@given(contents.filter(bool), st.data())
@settings(deadline=None)
def test_blanking_removes_these_users_and_keeps_every_other_body(given: list[Content], data: st.DataObject) -> None:
    store = MemoryStore()
    made = pack(given, DAY)
    write_packs(store, made.packs)
    gone_spans = data.draw(st.sets(st.sampled_from(sorted({one.span_id for one in given}))))
    for key, whole, _ in made.packs:
        users = footer_entries(whole)
        blanked = blank_frames(whole, [user for user in users if user.span_id in gone_spans])
        assert len(blanked) >= len(whole)
        assert footer_entries(blanked) == [user for user in users if user.span_id not in gone_spans]
        store.put(key, blanked)
    kept_frames = {body.frames for one, body in zip(given, made.bodies, strict=True) if one.span_id not in gone_spans}
    for one, body in zip(given, made.bodies, strict=True):
        if body.frames in kept_frames:
            assert read_body(store, body) == one.data
        else:
            with pytest.raises(BodyMissing, match="deleted"):
                read_body(store, body)


def test_nothing_of_a_deleted_body_is_left_in_the_object() -> None:
    keep, secret = os.urandom(300), os.urandom(300)
    made = pack([content(keep, span="keep", field="kept"), content(secret, span="gone", field="dropped")], DAY)
    data = made.packs[0].data
    blanked = blank_frames(data, [user for user in footer_entries(data) if user.span_id == "gone"])
    assert secret in data
    assert secret not in blanked
    assert secret[:40] not in blanked
    assert keep in blanked
    assert len(blanked) == len(data)
    again = blank_frames(blanked, footer_entries(blanked))
    assert keep not in again
    assert footer_entries(again) == []
    assert blank_frames(blanked, []) == blanked


def test_a_blanked_pack_goes_back_under_its_key_in_every_store(store: BodyStore) -> None:
    made = pack([content(f"text {n} ".encode() * 50, span=str(n)) for n in range(10)], DAY)
    write_packs(store, made.packs)
    (found,) = store.list("")
    data = store.get(found.key, 0, found.size)
    users = read_footer(store, found.key, found.size)
    store.put(found.key, blank_frames(data, users[:5]))
    assert read_bodies(store, made.bodies[5:]) == [f"text {n} ".encode() * 50 for n in range(5, 10)]
    with pytest.raises(BodyMissing):
        read_body(store, made.bodies[0])
    (found,) = store.list("")
    assert read_footer(store, found.key, found.size) == users[5:]
