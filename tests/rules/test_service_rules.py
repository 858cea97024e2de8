from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from sluicegate.contracts.checks import CheckRequest, CheckResponse
from sluicegate.contracts.errors import BadValue
from sluicegate.limits.limiter import Limiter
from sluicegate.rules.file_watch import EVERY_S_DEFAULT
from sluicegate.rules.problems import BadRules
from sluicegate.rules.resources.service import Checker
from sluicegate.rules.service_rule_set import ServiceRuleSet
from sluicegate.rules.service_rules import ServiceRules
from sluicegate.testing import HandClock
from tests.rules.resources.stories import OpenGate, RecordingLedger, native, rule


def text_of(*limits: int) -> str:
    return json.dumps(native(*[rule(f"r{n}", f"/{n}", limit) for n, limit in enumerate(limits)]))


def write_in_place(path: Path, text: str) -> None:
    path.write_text(text)
    # As if some time had passed since the last write, however coarse the file system's clock.
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000))


def move_there(path: Path, text: str) -> None:
    new = path.with_name("new")
    new.write_text(text)
    new.rename(path)


class Followed:
    """Rules of a folder, looked at by hand, and the books that were put in force."""

    def __init__(self, folder: Path, text: str = text_of(1), **settings: Any) -> None:
        self.file = folder / "a.yaml"
        self.file.write_text(text)
        self.books: list[ServiceRuleSet] = []
        self.clock = HandClock()
        self.rules = ServiceRules([folder], self.books.append, clock=self.clock, **settings)

    @property
    def sizes(self) -> list[int]:
        return [len(book) for book in self.books]

    def last(self) -> Mapping[str, Any]:
        return cast("Mapping[str, Any]", self.rules.status()["last_load"])


def test_rules_are_in_force_from_the_start(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    assert followed.rules.book is followed.books[0]
    assert not followed.rules.poll()
    assert followed.rules.counts == (1, 0)
    assert followed.rules.status() == {
        "version": followed.books[0].version,
        "files": [
            {
                "name": "a.yaml",
                "format": "native",
                "rules": 1,
                "sha": followed.books[0].files[0].sha,
            }
        ],
        "last_load": {
            "result": "accepted",
            "file": None,
            "line": None,
            "reason": "",
            "at": "2001-09-09T01:46:40.000000Z",
        },
    }


def test_what_is_wrong_at_the_start_is_raised(tmp_path: Path) -> None:
    with pytest.raises(BadRules):
        Followed(tmp_path, "limits: {}")
    with pytest.raises(BadValue, match="every_s"):
        Followed(tmp_path, every_s=0)

    def refuse(_: ServiceRuleSet) -> None:
        raise BadValue("rules", 1, "fewer")

    (tmp_path / "a.yaml").write_text(text_of(1))
    with pytest.raises(BadValue, match="fewer"):
        ServiceRules([tmp_path], refuse)


def test_a_file_that_is_moved_there_is_loaded_at_once(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    move_there(followed.file, text_of(1, 2))
    assert followed.rules.poll()
    assert followed.sizes == [1, 2]
    assert not followed.rules.poll()


def test_a_file_that_is_written_in_place_is_loaded_when_it_rests(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    for limits in ((1, 2), (1, 2, 3)):
        write_in_place(followed.file, text_of(*limits))
        assert not followed.rules.poll()
    assert followed.rules.poll()
    assert followed.sizes == [1, 3]


def test_a_new_file_and_one_that_goes_are_seen(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    (tmp_path / "b.yaml").write_text(json.dumps(native(rule("b", "/b"))))
    assert not followed.rules.poll()
    assert followed.rules.poll()
    (tmp_path / "b.yaml").unlink()
    assert followed.rules.poll()
    assert followed.sizes == [1, 2, 1]


def test_a_link_that_is_turned_elsewhere_is_seen(tmp_path: Path) -> None:
    for name, limits in (("..one", (1,)), ("..two", (1, 2))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yaml").write_text(text_of(*limits))
    (tmp_path / "..data").symlink_to("..one")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    books: list[ServiceRuleSet] = []
    rules = ServiceRules([tmp_path], books.append)
    (tmp_path / "..new").symlink_to("..two")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert rules.poll()
    assert [len(book) for book in books] == [1, 2]


def test_a_bad_file_never_replaces_a_good_book(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    followed.clock.advance(s=1)
    move_there(followed.file, "version: 1\nrules:\n  - rule_id: a\n    limit: 0\n    window: 1s\n")
    assert followed.rules.poll()
    assert followed.sizes == [1]
    assert followed.rules.book is followed.books[0]
    assert followed.rules.counts == (1, 1)
    last = followed.last()
    assert (last["result"], last["line"]) == ("refused", 4)
    assert last["file"] == str(followed.file)
    assert "close the door" in last["reason"]
    assert last["at"] == "2001-09-09T01:46:41.000000Z"
    assert json.dumps(followed.rules.status())
    for _ in range(100):  # what is wrong stays wrong until it is changed
        assert not followed.rules.poll()
    move_there(followed.file, text_of(1, 2))
    assert followed.rules.poll()
    assert followed.last()["result"] == "accepted"
    assert followed.sizes == [1, 2]


def test_a_folder_that_is_emptied_changes_nothing_but_the_status(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    followed.file.unlink()
    assert followed.rules.poll()
    assert followed.last()["result"] == "refused"
    assert (followed.last()["file"], followed.last()["line"]) == (None, None)
    assert followed.sizes == [1]
    assert not followed.rules.poll()


def test_what_cannot_be_read_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = Followed(tmp_path, every_s=1)
    real = ServiceRuleSet.load
    calls = [0]

    def fails(*args: Any, **options: Any) -> ServiceRuleSet:
        calls[0] += 1
        if calls[0] == 1:
            raise OSError("the disk is gone")
        return real(*args, **options)

    monkeypatch.setattr(ServiceRuleSet, "load", fails)
    move_there(followed.file, text_of(1, 2))
    assert followed.rules.poll()
    assert "the disk is gone" in followed.last()["reason"]
    looks = [followed.rules.poll() for _ in range(6)]
    assert looks == [False, False, False, False, True, False]
    assert followed.sizes == [1, 2]


def test_whoever_puts_rules_in_force_may_refuse_them(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    before = followed.rules.book

    def refuse(_: ServiceRuleSet) -> None:
        raise BadValue("rules", 2, "fewer")

    followed.rules._put_in_force = refuse
    move_there(followed.file, text_of(1, 2))
    assert followed.rules.poll()
    assert followed.rules.book is before
    assert "fewer" in followed.last()["reason"]


def test_a_reload_is_told_though_nothing_has_changed(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    followed.rules.reload()
    assert followed.rules.counts == (2, 0)
    assert followed.sizes == [1]
    write_in_place(followed.file, text_of(1, 2))
    followed.rules.reload()
    assert followed.sizes == [1, 2]
    assert not followed.rules.poll()


def wait_for(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout_s
        time.sleep(0.005)


def test_a_thread_sees_a_change_at_its_next_look(tmp_path: Path) -> None:
    assert EVERY_S_DEFAULT <= 1
    followed = Followed(tmp_path)
    with followed.rules:
        write_in_place(followed.file, text_of(1, 2))
        wait_for(lambda: followed.sizes == [1, 2])
        followed.rules.reload()
        wait_for(lambda: followed.rules.counts == (3, 0))
    followed.rules.start()
    assert not [one for one in threading.enumerate() if one.name == "watch files"]


def test_a_loop_is_given_its_book_in_its_own_thread(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text_of(1))

    async def serve() -> None:
        threads: list[int] = []
        event = asyncio.Event()

        def put(book: ServiceRuleSet) -> None:
            threads.append(threading.get_ident())
            if len(book) == 2:
                event.set()

        rules = ServiceRules([tmp_path], put, every_s=0.02, loop=asyncio.get_running_loop())
        rules.start()
        try:
            move_there(file, text_of(1, 2))
            await asyncio.wait_for(event.wait(), 60)
        finally:
            await asyncio.to_thread(rules.close)
        assert set(threads) == {threading.get_ident()}
        assert len(rules.book) == 2

    asyncio.run(serve())


def test_a_loop_that_closes_the_rules_does_not_wait_for_itself(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text_of(1))

    async def serve() -> None:
        put: list[ServiceRuleSet] = []
        rules = ServiceRules([tmp_path], put.append, every_s=0.01, loop=asyncio.get_running_loop())
        rules.start()
        move_there(file, text_of(1, 2))
        time.sleep(0.1)  # the loop is busy, and the thread waits for it
        began = time.monotonic()
        rules.close()
        assert time.monotonic() - began < 20
        assert len(put) == 1

    asyncio.run(serve())


def test_what_a_loop_says_of_a_book_is_told(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text_of(1))

    def put(book: ServiceRuleSet) -> None:
        if len(book) > 1:
            raise BadValue("rules", len(book), "fewer")

    async def serve() -> None:
        rules = ServiceRules([tmp_path], put, every_s=0.01, loop=asyncio.get_running_loop())
        with rules:
            move_there(file, text_of(1, 2))
            while rules.counts != (1, 1):
                await asyncio.sleep(0.005)
        assert len(rules.book) == 1

    asyncio.run(asyncio.wait_for(serve(), 60))


def test_counts_outlive_a_reload_and_no_check_meets_half_a_book(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text_of(3))
    limiter, clock = Limiter(), HandClock()
    checker = Checker(limiter, OpenGate(), RecordingLedger())
    books: list[ServiceRuleSet] = []

    def put(book: ServiceRuleSet) -> None:
        limiter.replace_rules(book.rules_beside(books[-1] if books else None))
        checker.book = book.resources
        books.append(book)

    def allowed(path: str) -> bool:
        answer = checker.check(CheckRequest("ann", path), clock.now_us())
        return cast("CheckResponse", answer).decision.allowed

    rules = ServiceRules([tmp_path], put)
    old = checker.book
    assert [allowed("/0") for _ in range(2)] == [True, True]
    move_there(file, text_of(3, 9))
    assert rules.poll()
    assert [allowed("/0") for _ in range(2)] == [True, False]
    assert allowed("/1")
    move_there(file, text_of(5, 9))
    assert rules.poll()
    # Who was on the way with the old book still finds its limit.
    new, checker.book = checker.book, old
    assert not allowed("/0")
    checker.book = new
    assert [allowed("/0") for _ in range(6)] == [True] * 5 + [False]
