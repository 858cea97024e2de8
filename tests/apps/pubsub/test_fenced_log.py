"""Two who both believe to be the home of a part: what counts is what the log's order says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, final

import pytest

from sluicegate.apps.pubsub.fenced_log import PENDING_MAX, FencedLog
from sluicegate.contracts.errors import Refused, Unavailable
from sluicegate.contracts.event_log import Damage, Event
from sluicegate.wire.json_objects import encode_json, parse_object
from tests.engines.child import PATIENCE_S, until

KIND = "message/1"


@final
class Topic:
    """What brokers have."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.oldest = 0  # offset that is kept
        self.reads = 0  # events that readers were given
        self.meanwhile: Callable[[], object] = lambda: (
            None
        )  # what others do while one reads in vain

    def keep(self, kind: str, body: bytes, at_us: int) -> int:
        self.events.append(Event(len(self.events), at_us, kind, body))
        return len(self.events) - 1


@final
class TopicReader:
    damage: Sequence[Damage] = ()

    def __init__(self, topic: Topic, offset: int) -> None:
        self._topic = topic
        self._offset = max(offset, topic.oldest)
        self.at_end = False

    def read(self, events_max: int, wait_us: int) -> Sequence[Event]:
        found = self._topic.events[self._offset : self._offset + min(events_max, 2)]
        self._offset += len(found)
        self._topic.reads += len(found)
        self.at_end = not found
        if not found:
            self._topic.meanwhile()
        return found

    def close(self) -> None:
        pass


@final
class Producer:
    """One node's log. What is held is in the topic, and its acknowledgement on the way."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.held: list[tuple[Future[int], int]] | None = None

    def append(self, kind: str, body: bytes, at_us: int) -> Future[int]:
        promise: Future[int] = Future()
        offset = self.topic.keep(kind, body, at_us)
        if self.held is None:
            promise.set_result(offset)
        else:
            self.held.append((promise, offset))
        return promise

    def release(self, *, lose: bool = False) -> None:
        held, self.held = self.held or [], None
        for promise, offset in held:
            if lose:
                promise.set_exception(Unavailable("the log", "no acknowledgement in time"))
            else:
                promise.set_result(offset)

    def reader(self, offset: int = 0) -> TopicReader:
        return TopicReader(self.topic, offset)

    def end(self) -> int:
        return len(self.topic.events)

    def offset_since(self, at_us: int) -> int:
        return next((one.offset for one in self.topic.events if one.at_us >= at_us), self.end())

    def close(self, grace_us: int = 0) -> None:
        pass


@final
class Home:
    """A node with its fenced log."""

    def __init__(self, topic: Topic, node: str) -> None:
        self.producer = Producer(topic)
        self.log = FencedLog(self.producer, node)
        self.found: list[int] = []
        self.lost: list[str] = []
        self.log.listen(lambda event: self.found.append(event.offset), self.lost.append)
        self.log.claim(0)

    def append(self, data: object) -> Future[int]:
        return self.log.append(KIND, encode_json({"data": data}), 0)


def result(promise: Future[int]) -> Any:
    try:
        return promise.result(PATIENCE_S)
    except Refused as refused:
        reason = refused.decision.reason
        return None if reason is None else reason.name


def test_a_home_alone_has_its_events_one_after_the_other() -> None:
    topic = Topic()
    home = Home(topic, "n1")
    assert [result(home.append(n)) for n in range(3)] == [1, 2, 3]
    assert parse_object(topic.events[2].body) == {"data": 1, "claim": 1}
    home.log.look()
    assert (home.found, home.lost) == ([], [])


def test_of_two_homes_the_one_that_claimed_first_is_refused_and_only_the_other_counts() -> None:
    topic = Topic()
    old = Home(topic, "n1")
    assert result(old.append("first")) == 1
    new = Home(topic, "n2")
    stale = old.append("stale")  # it is in the topic, behind the claim of the other
    assert result(stale) == "home_unavailable"
    assert old.lost == ["n2"]
    assert result(old.append("again")) == "home_unavailable"
    assert len(topic.events) == 4, "who knows that it is none any more appends nothing"
    assert result(new.append("second")) == 4
    assert (new.found, new.lost) == ([], [])


def test_what_came_before_the_claim_counts_though_its_acknowledgement_comes_after() -> None:
    topic = Topic()
    old = Home(topic, "n1")
    old.producer.held = []
    before = [old.append(n) for n in range(2)]
    Home(topic, "n2")
    after = [old.append(n) for n in range(2)]
    old.producer.release()
    assert [result(one) for one in before] == [1, 2]
    assert [result(one) for one in after] == ["home_unavailable"] * 2


def test_an_event_whose_acknowledgement_was_lost_is_found_in_its_place() -> None:
    topic = Topic()
    home = Home(topic, "n1")
    home.producer.held = []
    promise = home.append("in doubt")
    home.producer.release(lose=True)
    with pytest.raises(Unavailable):
        promise.result(PATIENCE_S)
    assert result(home.append("next")) == 2
    assert home.found == [1]
    home.producer.held = []
    home.append("in doubt")
    home.producer.release(lose=True)
    home.log.look()  # nothing is appended behind it
    assert home.found == [1, 3]


def test_an_idle_home_finds_out_that_there_is_another() -> None:
    topic = Topic()
    old = Home(topic, "n1")
    Home(topic, "n2")
    assert old.lost == []
    old.log.look()
    until(lambda: old.lost == ["n2"], "the other to be noticed")
    assert result(old.append(1)) == "home_unavailable"


def test_what_the_other_appended_behind_its_claim_is_not_taken_for_ours() -> None:
    """Though both are read at once."""
    topic = Topic()
    old, new = Home(topic, "n1"), Home(topic, "n2")
    assert result(new.append("theirs")) == 2
    old.log.look()
    assert (old.lost, old.found) == (["n2"], [])


def test_so_many_may_wait_for_their_place_and_no_more() -> None:
    """On this the distance rests at which a reader begins before what it reads."""
    home = Home(Topic(), "n1")
    home.producer.held = []
    waiting = [home.append(n) for n in range(PENDING_MAX)]
    with pytest.raises(Unavailable, match="10,000 events wait"):
        home.append("one more").result(PATIENCE_S)
    home.producer.release()
    assert result(waiting[-1]) == PENDING_MAX
    assert result(home.append("one more")) == PENDING_MAX + 1


def test_who_lost_a_part_hears_of_the_home_that_has_it_as_long_as_there_is_one() -> None:
    topic = Topic()
    old, new = Home(topic, "n1"), Home(topic, "n2")
    old.log.look()
    topic.meanwhile = new.log.look
    assert old.log.is_held(0)
    assert old.log.is_held(0), "it answers each time"
    assert result(new.append("ours")) == len(topic.events) - 1
    topic.meanwhile = lambda: None  # it is gone
    assert not old.log.is_held(0)
    again = Home(topic, "n1")
    assert result(again.append("back")) == len(topic.events) - 1
    assert new.lost == []
    new.log.look()  # it was only paused
    assert new.lost == ["n1"]
    assert (old.found, new.found, again.found) == ([], [], []), "no question is a message"


def test_who_is_no_home_any_more_answers_nobody() -> None:
    topic = Topic()
    old, new, _ = (Home(topic, name) for name in ("n1", "n2", "n3"))
    old.log.look()
    topic.meanwhile = new.log.look  # it finds out as it reads the question
    assert not old.log.is_held(0)
    assert new.lost == ["n3"]


def test_a_home_that_appends_has_answered_and_one_that_was_fenced_has_not() -> None:
    topic = Topic()
    old, new = Home(topic, "n1"), Home(topic, "n2")
    old.log.look()
    topic.meanwhile = lambda: topic.keep(KIND, b'{"data":1,"claim":1}', 0)
    assert not old.log.is_held(0), "what it had under way itself"
    topic.meanwhile = lambda: new.append("ours")
    assert old.log.is_held(0)
    topic.meanwhile = lambda: Home(topic, "n3")
    assert old.log.is_held(0), "another has just claimed it"


def test_what_strangers_write_into_the_topic_is_passed_over() -> None:
    topic = Topic()
    home = Home(topic, "n1")
    topic.keep("of another program", b"\xff no JSON", 0)
    topic.keep(KIND, b'{"data": "without a claim"}', 0)
    assert result(home.append("ours")) == 3
    assert (home.found, home.lost) == ([], [])
