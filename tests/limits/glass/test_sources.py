"""One suite for every place where openings are kept, and what is particular to each."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import json
import os
import stat
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from sluicegate import BadValue, Unavailable
from sluicegate.contracts.errors import MissingPackage
from sluicegate.limits.glass import file as glass_file
from sluicegate.limits.glass import page
from sluicegate.limits.glass.break_glass import ALL, Opening
from sluicegate.limits.glass.file import AUDIT_BYTES_MAX
from sluicegate.limits.glass.page import (
    BREAK,
    END,
    MEND,
    PAGE_BYTES_MAX,
    AuditEntry,
    UnreadableLine,
)
from sluicegate.limits.glass.sources import AUDIT_MAX, GlassSource, memory_source, open_source
from sluicegate.testing import HandClock, SeededChance

if TYPE_CHECKING:
    from tests.engines.redis import RedisCluster, RedisServer

T = TypeVar("T")
Make = Callable[..., GlassSource]

WHO = {"by": "ann", "why": "the rule is wrong"}
KEY = "{rate_limit}:glass"


def run(story: Coroutine[Any, Any, T]) -> T:
    result = asyncio.run(story)
    gc.collect()  # a socket left open complains now
    return result


def entries(lines: list[AuditEntry | UnreadableLine]) -> list[AuditEntry]:
    assert all(isinstance(one, AuditEntry) for one in lines)
    return [one for one in lines if isinstance(one, AuditEntry)]


@pytest.fixture(params=["memory", "file", "redis", "cluster"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes sources of the same place."""
    if request.param == "memory":
        shared = memory_source(chance=SeededChance(1))
        yield lambda **_: shared
        return
    url = f"file:{tmp_path}/glass.json"
    if request.param in {"redis", "cluster"}:
        name = {"redis": "redis_server", "cluster": "redis_cluster"}[request.param]
        servers: RedisServer | RedisCluster = request.getfixturevalue(name)
        yield lambda **settings: open_source(servers.url, **settings)
        servers.heal()  # empty, for the next
        return
    yield lambda **settings: open_source(url, **settings)


# The suite.


def test_nothing_is_open_where_nothing_was_ever_opened(make: Make) -> None:
    async def story() -> None:
        source = make()
        view = await source.look()
        assert (view.openings, view.damage) == ((), "")
        assert await source.audit() == []
        assert await source.mend(None, by="ann") == ()
        assert await source.audit() == []
        await source.close()

    run(story())


def test_what_one_opens_another_sees_and_mends(make: Make) -> None:
    async def story() -> None:
        one, other = make(), make()
        opened = await one.break_(rule="login", key="tenant:ü", for_s=60, **WHO)
        assert opened == Opening(
            opened.id, "login", "tenant:ü", opened.opened_at_us + 60_000_000, opened.opened_at_us,
            "ann", "the rule is wrong",
        )  # fmt: skip
        view = await other.look()
        assert view.openings == (opened,)
        assert 0 < opened.until_us - view.now_us <= 60_000_000
        everything = await other.break_(for_s=60, **WHO)
        assert (everything.rule, everything.key) == (ALL, ALL)
        assert await other.mend(opened.id, by="bob", why="it is right again") == (opened,)
        assert (await one.look()).openings == (everything,)
        assert await one.mend(None, by="bob") == (everything,)
        assert (await other.look()).openings == ()
        await one.close()
        await other.close()

    run(story())


def test_the_audit_says_who_did_what_when_and_why_and_what_ended_by_itself(make: Make) -> None:
    async def story() -> None:
        source = make()
        short = await source.break_(rule="login", for_s=1, **WHO)
        long = await source.break_(rule="api", for_s=60, by="bob", why="their launch")
        await source.mend(long.id, by="cat", why="enough")
        while (await source.look()).now_us < short.until_us:
            await asyncio.sleep(0.05)
        audit = entries(await source.audit())
        assert [(one.what, one.by, one.why, one.opening) for one in audit] == [
            (BREAK, "ann", "the rule is wrong", short),
            (BREAK, "bob", "their launch", long),
            (MEND, "cat", "enough", long),
            (END, "", "its time was over", short),
        ]
        assert short.opened_at_us == audit[0].at_us <= audit[1].at_us <= audit[2].at_us
        assert audit[3].at_us == short.until_us
        assert entries(await source.audit(1))[0].what == MEND
        await source.close()

    run(story())


def test_two_who_open_at_once_both_have_their_opening(make: Make) -> None:
    async def story() -> None:
        sources = [make() for _ in range(8)]
        opened = await asyncio.gather(
            *(one.break_(rule=f"r{n}", for_s=60, **WHO) for n, one in enumerate(sources))
        )
        view = await sources[0].look()
        assert set(view.openings) == set(opened)
        assert len(entries(await sources[0].audit())) == len(opened) == 8
        for source in sources:
            await source.close()

    run(story())


def test_what_is_not_said_properly_opens_nothing(make: Make) -> None:
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("by", {"by": ""}),
        ("why", {"why": "\n"}),
        ("for_s", {"for_s": 0.5}),
        ("for_s", {"for_s": 86_401}),
        ("for_s", {"for_s": float("nan")}),
        ("for_s", {"for_s": -1}),
        ("rule", {"rule": ""}),
        ("key", {"key": "x" * 5_000}),
    ]

    async def story() -> None:
        source = make()
        for field, change in wrong:
            with pytest.raises(BadValue, match=rf"glass\.{field}: "):
                await source.break_(**{"for_s": 60, **WHO, **change})
        with pytest.raises(BadValue, match=r"glass\.by"):
            await source.mend(None, by="\x1b")
        with pytest.raises(BadValue, match=r"glass\.why"):
            await source.mend(None, by="ann", why="\x1b")
        for last in (0, AUDIT_MAX + 1):
            with pytest.raises(BadValue, match=r"glass\.last"):
                await source.audit(last)
        assert (await source.look()).openings == ()
        assert await source.audit() == []
        await source.close()

    run(story())


def test_so_many_may_be_open_and_no_more(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    few = 20  # a page of all that may be open is in `test_page.py`
    monkeypatch.setattr(page, "OPENINGS_MAX", few)

    async def story() -> None:
        source = make()
        for n in range(few):
            await source.break_(rule=f"r{n}", for_s=60, **WHO)
        with pytest.raises(BadValue, match=f"{few} may be open"):
            await source.break_(rule="one more", for_s=60, **WHO)
        assert len((await source.look()).openings) == few
        assert len(entries(await source.audit())) == few
        await source.close()

    run(story())


def test_a_source_may_be_used_again_after_it_was_closed_and_from_another_loop(make: Make) -> None:
    source = make()

    async def story() -> None:
        await source.break_(for_s=60, **WHO)
        await source.close()
        assert len((await source.look()).openings) == 1
        await source.close()

    run(story())
    assert len(run(looked(source)).openings) == 1


async def looked(source: GlassSource) -> Any:
    view = await source.look()
    await source.close()
    return view


def test_a_page_is_not_put_in_the_place_of_one_that_has_changed(make: Make) -> None:
    async def story() -> None:
        source = make()
        shelf = source._store
        page = await shelf.read()
        until_us = page.now_us + 60_000_000
        assert await shelf.swap(page, b"mine", [b"a"], until_us)
        assert not await shelf.swap(page, b"late", [b"b"], until_us)
        assert (await shelf.read()).text == b"mine"
        assert await shelf.lines(9) == [b"a"]
        await source.close()

    run(story())


def test_a_source_has_a_bound_on_the_length_that_can_be_set() -> None:
    async def story() -> None:
        source = memory_source(HandClock(), for_s_max=2 * 86_400)
        assert await source.break_(for_s=2 * 86_400, **WHO)
        with pytest.raises(BadValue, match=r"for_s"):
            await source.break_(for_s=2 * 86_400 + 1, **WHO)

    run(story())
    with pytest.raises(BadValue, match="for_s_max"):
        memory_source(for_s_max=0.5)


@pytest.mark.parametrize(
    "url",
    ["memory:", "memory://", "", "/run/glass.json", "http://x", "redis://h:x", "file:glass.json",
     "file://host/glass.json", "file:/x/", "file:/x?y", "file:"],
)  # fmt: skip
def test_a_url_that_processes_cannot_share_is_refused(url: str) -> None:
    with pytest.raises(BadValue):
        open_source(url)


def test_a_prefix_that_would_put_page_and_audit_apart_is_refused() -> None:
    for prefix in ("", "}x", "{x}"):
        with pytest.raises(BadValue, match="prefix"):
            open_source("redis://127.0.0.1", prefix=prefix)
    with pytest.raises(BadValue, match="audit_max"):
        open_source("redis://127.0.0.1", audit_max=AUDIT_MAX + 1)


def test_without_the_driver_the_command_that_gets_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "hiredis", None)
    for name in [name for name in sys.modules if name.startswith("sluicegate.")]:
        if ".redis." in name or name.endswith("glass.redis"):
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingPackage, match=r"\.\[redis\]"):
        open_source("redis://127.0.0.1")


# Redis.


def ask(server: RedisServer, *command: str | int) -> Any:
    return server.ask(*command)


@pytest.mark.parametrize(
    "command",
    [
        ("SET", KEY, "OK"),
        ("SET", KEY, "x" * (PAGE_BYTES_MAX + 1)),
        ("SETRANGE", KEY, 50_000_000, "x"),
        ("HSET", KEY, "openings", "*"),
        ("RPUSH", KEY, "*"),
        ("SET", KEY, b"\xff\xfe"),
        ("SET", KEY, '{"format": "sluicegate-glass", "version": 1, "openings": ["*"]}'),
    ],
    ids=["text", "long", "huge", "hash", "list", "bytes", "half"],
)
def test_a_foreign_value_opens_nothing_and_is_replaced_only_when_all_is_mended(
    redis_any: RedisServer, command: tuple[str | int, ...]
) -> None:
    async def story() -> None:
        source = open_source(redis_any.url)
        ask(redis_any, *command)
        view = await source.look()
        assert view.openings == ()
        assert view.damage
        with pytest.raises(BadValue, match="mend --all"):
            await source.break_(for_s=60, **WHO)
        with pytest.raises(BadValue, match="mend --all"):
            await source.mend("a1", by="ann")
        assert await source.audit() == []
        assert await source.mend(None, by="ann") == ()
        (line,) = entries(await source.audit())
        assert (line.what, line.by, line.opening) == (MEND, "ann", None)
        opened = await source.break_(for_s=60, **WHO)
        assert (await source.look()).openings == (opened,)
        await source.close()

    run(story())


def test_a_value_that_only_begins_like_the_page_that_was_read_is_not_replaced(
    redis_any: RedisServer,
) -> None:
    async def story() -> None:
        source = open_source(redis_any.url)
        shelf = source._store
        ask(redis_any, "SET", KEY, "x" * PAGE_BYTES_MAX)
        page = await shelf.read()
        assert len(page.text) == PAGE_BYTES_MAX
        ask(redis_any, "APPEND", KEY, "y")
        assert not await shelf.swap(page, b"new", [], page.now_us)
        assert ask(redis_any, "STRLEN", KEY) == PAGE_BYTES_MAX + 1
        await source.close()

    run(story())


def test_the_page_goes_with_its_last_opening_and_the_audit_stays(redis_any: RedisServer) -> None:
    async def story() -> None:
        source = open_source(redis_any.url, prefix="mine")
        await source.break_(for_s=20, **WHO)
        await source.break_(rule="x", for_s=10, **WHO)
        assert 20_000 < ask(redis_any, "PTTL", "{mine}:glass") <= 21_000
        assert ask(redis_any, "PTTL", "{mine}:glass:audit") == -1
        await source.mend(None, by="ann")
        assert ask(redis_any, "KEYS", "*") == ["{mine}:glass:audit"]
        await source.close()

    run(story())


def test_the_audit_in_redis_has_a_length(redis_any: RedisServer) -> None:
    async def story() -> None:
        source = open_source(redis_any.url, audit_max=3)
        for n in range(5):
            await source.break_(rule=f"r{n}", for_s=60, **WHO)
        audit = entries(await source.audit())
        assert [one.opening.rule for one in audit if one.opening] == ["r2", "r3", "r4"]
        for n in range(120):
            ask(redis_any, "RPUSH", f"{KEY}:audit", f"junk {n}")
        told_all = await source.audit()
        assert len(told_all) == 123
        assert [one.what for one in await source.audit(70)] == ["unreadable"] * 70
        await source.close()

    run(story())


def test_what_cannot_be_audited_is_not_done(redis_any: RedisServer) -> None:
    async def story() -> None:
        source = open_source(redis_any.url)
        ask(redis_any, "SET", f"{KEY}:audit", "not a list")
        with pytest.raises(Unavailable):
            await source.break_(for_s=60, **WHO)
        assert (await source.look()).openings == ()
        with pytest.raises(Unavailable):
            await source.audit()
        await source.close()

    run(story())


def test_who_may_only_read_can_follow_and_not_break(redis_any: RedisServer) -> None:
    ask(redis_any, "ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@read", "+time",
        "+hello", "+ping", "+client")  # fmt: skip

    async def story() -> None:
        writer = open_source(redis_any.url)
        opened = await writer.break_(for_s=60, **WHO)
        reader = open_source(redis_any.url.replace("redis://", "redis://reader:secret@"))
        assert (await reader.look()).openings == (opened,)
        with pytest.raises(Unavailable, match="NOPERM"):
            await reader.break_(for_s=60, **WHO)
        with pytest.raises(Unavailable, match="NOPERM"):
            await reader.mend(None, by="ann")
        await reader.close()
        await writer.close()

    run(story())


def test_a_server_that_is_not_there_or_does_not_answer_is_unavailable(
    redis_any: RedisServer,
) -> None:
    async def story() -> None:
        source = open_source(redis_any.url)
        await source.look()
        redis_any.pause()
        with pytest.raises(Unavailable):
            await source.look()
        redis_any.resume()
        redis_any.kill()
        with pytest.raises(Unavailable):
            await source.look()
        await source.close()

    run(story())


# Files.


def test_all_files_are_their_owners_alone(tmp_path: Path) -> None:
    run(open_source(f"file://{tmp_path}/my%20glass.json").break_(for_s=60, **WHO))
    names = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert names == {f"my glass.json{end}": 0o600 for end in ("", ".lock", ".audit")}
    lines = (tmp_path / "my glass.json.audit").read_text().splitlines()
    assert [json.loads(line)["by"] for line in lines] == ["ann"]


def test_mending_where_nothing_is_leaves_nothing(tmp_path: Path) -> None:
    assert run(open_source(f"file:{tmp_path}/glass.json").mend(None, by="ann")) == ()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_others_may_have_written_opens_nothing(tmp_path: Path) -> None:
    path = tmp_path / "glass.json"
    source = open_source(f"file:{path}")
    run(source.break_(for_s=60, **WHO))
    path.chmod(0o646)
    assert "written by anybody" in run(source.look()).damage
    path.chmod(0o644)
    assert run(source.look()).damage == ""
    path.chmod(0o666)
    with pytest.raises(BadValue):
        run(source.break_(for_s=60, **WHO))
    run(source.mend(None, by="ann"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_opens_its_owner_can_read_and_a_strangers_file_is_not_believed(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "service"
    folder.mkdir()
    os.chown(folder, 4_321, 4_322)
    path = folder / "glass.json"
    source = open_source(f"file:{path}")
    run(source.break_(for_s=60, **WHO))
    for one in folder.iterdir():
        assert (one.stat().st_uid, one.stat().st_gid) == (4_321, 4_322), one
    assert len(run(source.look()).openings) == 1
    os.chown(path, 6_666, 6_666)
    view = run(source.look())
    assert view.openings == ()
    assert "user 6666" in view.damage


@pytest.mark.parametrize("text", [b"OK", b"\xff", b"x" * (PAGE_BYTES_MAX + 1), b"[" * 100_000])
def test_a_foreign_file_opens_nothing_and_is_replaced_only_when_all_is_mended(
    tmp_path: Path, text: bytes
) -> None:
    path = tmp_path / "glass.json"
    path.write_bytes(text)
    source = open_source(f"file:{path}")
    assert run(source.look()).damage
    with pytest.raises(BadValue):
        run(source.break_(for_s=60, **WHO))
    assert path.read_bytes() == text
    assert run(source.mend(None, by="ann")) == ()
    assert run(source.look()).damage == ""
    assert [one.what for one in run(source.audit())] == [MEND]


def test_a_pipe_or_a_folder_in_the_files_place_is_told_and_nobody_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "no plain file" in run(open_source(f"file:{tmp_path}/pipe").look()).damage
    (tmp_path / "folder").mkdir()
    assert "no plain file" in run(open_source(f"file:{tmp_path}/folder").look()).damage
    with pytest.raises(Unavailable):
        run(open_source(f"file:{tmp_path}/folder").mend(None, by="ann"))


def test_a_folder_that_is_not_there_is_told_to_the_writer(tmp_path: Path) -> None:
    source = open_source(f"file:{tmp_path}/none/glass.json")
    assert run(source.look()).openings == ()
    with pytest.raises(Unavailable, match="No such file"):
        run(source.break_(for_s=60, **WHO))


def test_a_lock_that_is_held_is_waited_for_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_source(f"file:{tmp_path}/glass.json")
    run(source.break_(for_s=60, **WHO))
    monkeypatch.setattr(glass_file, "LOCK_S_MAX", 0.1)
    with open(tmp_path / "glass.json.lock", "rb") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="held by another writer"):
            run(source.mend(None, by="ann"))
    assert len(run(source.mend(None, by="ann"))) == 1


def test_what_a_killed_writer_left_hinders_nobody(tmp_path: Path) -> None:
    (tmp_path / "glass.json.new").write_bytes(b"half a pa")
    (tmp_path / "glass.json.lock").touch()
    source = open_source(f"file:{tmp_path}/glass.json")
    opened = run(source.break_(for_s=60, **WHO))
    assert run(source.look()).openings == (opened,)
    assert not (tmp_path / "glass.json.new").exists()


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    source = open_source(f"file:{tmp_path}/glass.json")
    run(source.break_(for_s=60, **WHO))
    with open(tmp_path / "glass.json.audit", "ab") as audit:
        audit.write(b'{"version":1,"at')
    run(source.mend(None, by="bob"))
    assert [one.what for one in run(source.audit())] == [BREAK, "unreadable", MEND]


def test_the_audit_of_a_file_starts_anew_when_it_is_long(tmp_path: Path) -> None:
    source = open_source(f"file:{tmp_path}/glass.json")
    (tmp_path / "glass.json.audit").write_bytes(b"old\n" * (AUDIT_BYTES_MAX // 4))
    run(source.break_(for_s=60, **WHO))
    assert not (tmp_path / "glass.json.audit").exists()
    run(source.mend(None, by="bob"))
    audit = run(source.audit(3))
    assert [one.what for one in audit] == ["unreadable", BREAK, MEND]
    assert (tmp_path / "glass.json.audit.old").stat().st_size < AUDIT_BYTES_MAX + 1_000
