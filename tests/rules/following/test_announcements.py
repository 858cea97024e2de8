from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from threading import Event as Flag

from sluicegate.contracts.errors import Unavailable
from sluicegate.contracts.event_log import Damage, Event
from sluicegate.contracts.rulebook import RULES_CHANGED
from sluicegate.rules.following.announcements import AnnouncementReader
from sluicegate.rules.following.failures import ANNOUNCEMENTS, FailureRecord
from sluicegate.testing import SeededChance


class FailingReader:
    """Reads one event at a time, and fails before some."""

    def __init__(self, log: FailingLog, offset: int) -> None:
        self.log = log
        self.offset = offset
        self.at_end = False
        self.damage: Sequence[Damage] = ()

    def read(self, events_max: int, wait_us: int) -> Sequence[Event]:
        if self.offset in self.log.fails:
            self.log.fails.remove(self.offset)
            raise Unavailable("the log", "it failed")
        if self.offset == len(self.log.events):
            self.log.drained.set()
            return []
        event = self.log.events[self.offset]
        self.offset += 1
        return [event]

    def close(self) -> None:
        self.log.closed += 1


class FailingLog:
    def __init__(self, kinds: Sequence[str], fails: set[int]) -> None:
        self.events = [Event(at, at * 10, kind, b"%d" % at) for at, kind in enumerate(kinds)]
        self.fails = fails
        self.readers: list[int] = []
        self.closed = 0
        self.drained = Flag()

    def append(self, kind: str, body: bytes, at_us: int) -> Future[int]:
        raise NotImplementedError

    def reader(self, offset: int = 0) -> FailingReader:
        self.readers.append(offset)
        return FailingReader(self, offset)

    def close(self, grace_us: int = 0) -> None:
        raise NotImplementedError


def test_a_reader_that_fails_is_given_back_and_another_goes_on_where_it_was() -> None:
    log = FailingLog([RULES_CHANGED, "other", RULES_CHANGED, RULES_CHANGED], {0, 2})
    announced: list[tuple[bytes, int]] = []
    record = FailureRecord()
    listener = AnnouncementReader(
        log, lambda body, at_us: announced.append((body, at_us)), record, SeededChance(1)
    )
    listener.start()
    assert log.drained.wait(60)
    listener.close(30)
    assert announced == [(b"0", 0), (b"2", 20), (b"3", 30)]
    assert log.readers == [0, 0, 2]
    assert log.closed == 3
    assert record.failure_counts[ANNOUNCEMENTS, "unreachable"] == 2
    assert record.failures == {}


def test_it_can_be_asked_by_hand() -> None:
    log = FailingLog([RULES_CHANGED], set())
    announced: list[bytes] = []
    listener = AnnouncementReader(
        log, lambda body, _: announced.append(body), FailureRecord(), SeededChance(1)
    )
    assert [listener.listen(), listener.listen()] == [1, 0]
    assert announced == [b"0"]
    listener.close(0)
    assert log.closed == 1
