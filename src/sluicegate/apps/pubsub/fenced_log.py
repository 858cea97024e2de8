"""Fenced log: one part of a log that all nodes share, with one home at a time that counts.

Any node can append to a topic, also one that was paused, or cut off, while another became the home
in its place. So a home claims its part before it reads it: a claim is an event, and its place in
the log, which brokers decide, is the number that each later event of that home carries.

    an event counts if no claim with a higher number came before it

Everybody who reads finds the same. What is acknowledged at the offset after the last one that is
known has nothing in between, so it counts; that is the ordinary case, and costs a comparison. If
there is something in between it is read first: a claim of another node ends this home, and what it
had appended behind that claim is refused, though it is in the log, and nobody will ever read it. A
message of this home whose acknowledgement was lost is found in the same way, and delivered.

A home that appends nothing looks at the log's end from time to time (`look`).

A node that lost a part which should be its own asks in the log whether it still has another home
(`is_held`). The home that counts answers there; so does one that appends anything. Where nobody
does the node may claim the part again: if that was wrong, it is in order all the same.

Bound: what waits for its acknowledgement, which the log bounds. Its promises are kept in the log's
order, from a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Any, Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import BadValue, Refused, SluicegateError, Unavailable
from sluicegate.contracts.event_log import OLDEST, Event, Reader, SharedLog
from sluicegate.contracts.reasons import HOME_UNAVAILABLE
from sluicegate.wire.json_objects import encode_json, parse_object

CLAIM_KIND: Final = "home/1"
QUESTION_KIND: Final = "home-question/1"
ANSWER_KIND: Final = "home-answer/1"
KINDS: Final = (CLAIM_KIND, QUESTION_KIND, ANSWER_KIND)  # that are between homes, and no messages
NO_CLAIM: Final = 0
PENDING_MAX: Final = 10_000  # events that wait to be known to count
# A home that lost its part leaves at most `PENDING_MAX` events behind the other's claim. So before
# any place, in so many there is one which says who counts there, though two were fenced meanwhile.
FENCE_EVENTS: Final = 2 * PENDING_MAX
SILENCE_MAX: Final = 600  # reads without an event, of what must be there
ANSWER_READS: Final = 80  # that an answer is waited for: 8 s, where a home looks each second
RETRY_US: Final = 1_000_000
RULE_ID: Final = "home"
_WAIT_US: Final = 100_000
_BATCH: Final = 1_000
_log: Final = logging.getLogger("sluicegate.pubsub")


@final
class Fence:
    """What counts of a log that is read from its beginning, or from the last claim on."""

    def __init__(self, latest: int = NO_CLAIM) -> None:
        self.latest = latest

    def admits(self, event: Event, fields: Mapping[str, Any]) -> bool:
        """Whether it counts, for who reads messages; a claim does not, but is taken note of."""
        if event.kind == CLAIM_KIND:
            self.latest = event.offset + 1
        if event.kind in KINDS:
            return False
        claim = int(fields.get("claim", NO_CLAIM))
        if claim < self.latest:
            return False
        self.latest = claim  # its claim is too old to be in the log
        return True


def _ignore(_: object) -> None:
    pass


@final
class FencedLog:
    """An `EventLog` of a home; `claim` comes first."""

    def __init__(self, log: SharedLog, node: str) -> None:
        self._log = log
        self._node = node
        self._claim = NO_CLAIM
        self._fence = Fence()
        self._lock = Lock()
        self._newest = -1  # offset up to which everything is known
        self._under_way = 0
        self._waiting: dict[int, Future[int]] = {}  # acknowledged, with something before them
        self._reading = False
        self._target = -1  # up to which is to be read
        self._lost_to = ""
        self._closed = False
        self._found: Callable[[Event], None] = _ignore
        self._lost: Callable[[str], None] = _ignore

    def listen(self, found: Callable[[Event], None], lost: Callable[[str], None]) -> None:
        """Be told, from a thread, of events of ours that are in the log against what was said of
        them; and of the node that is the home now."""
        self._found, self._lost = found, lost

    def claim(self, at_us: int) -> int:
        """Be the home from now on; return the offset up to which others were. It waits."""
        offset = self._log.append(CLAIM_KIND, encode_json({"node": self._node}), at_us).result()
        with self._lock:
            self._claim = self._fence.latest = offset + 1
            self._newest = offset
        return offset

    def append(self, kind: str, body: bytes, at_us: int) -> Future[int]:
        """Keep one event, a JSON object; the promise is its offset, once it counts for good."""
        promise: Future[int] = Future()
        promise.set_running_or_notify_cancel()
        with self._lock:
            if self._lost_to:
                promise.set_exception(_refusal())
                return promise
            if self._under_way + len(self._waiting) >= PENDING_MAX:
                why = f"{PENDING_MAX:,} events wait already for their place in its log"
                promise.set_exception(Unavailable("the history", why))
                return promise
            self._under_way += 1
        marked = b'%b,"claim":%d}' % (body[:-1], self._claim)
        self._log.append(kind, marked, at_us).add_done_callback(
            lambda durable: self._settle(promise, durable)
        )
        return promise

    def look(self) -> None:
        """Find out whether there is anything that this home does not know of. It waits."""
        end = self._log.end()
        with self._lock:
            if self._lost_to or self._under_way or self._reading or end - 1 <= self._newest:
                return
            self._reading = True
            self._target = end - 1
        self._read_between()

    def is_held(self, at_us: int) -> bool:
        """Whether another home has the part that this one lost. It asks, and waits."""
        question = encode_json({"node": self._node})
        offset = self._log.append(QUESTION_KIND, question, at_us).result()
        reader = self._log.reader(offset + 1)
        try:
            for _ in range(ANSWER_READS):
                events = reader.read(_BATCH, _WAIT_US)
                if any(event.kind == CLAIM_KIND or self._is_of_home(event) for event in events):
                    return True
                if self._closed:
                    return True
            return False
        finally:
            reader.close()

    def offset_since(self, at_us: int) -> int:
        """The offset before which all is older. It waits."""
        return self._log.offset_since(at_us)

    def reader(self, offset: int = OLDEST) -> Reader:
        """Return a reader of every event, those that do not count too."""
        return self._log.reader(offset)

    def close(self, grace_us: int = 0) -> None:
        """Wait at most so long for what is under way."""
        self._closed = True
        self._log.close(grace_us)

    # Inside.

    def _is_of_home(self, event: Event) -> bool:
        try:
            claim = parse_object(event.body).get("claim")
        except BadValue:  # a stranger's
            return False
        return isinstance(claim, int) and claim >= self._fence.latest

    def _settle(self, promise: Future[int], durable: Future[int]) -> None:
        with self._lock:
            self._under_way -= 1
            error = durable.exception()
            if error is not None:  # it may be in the log all the same, and is found then
                promise.set_exception(error)
                return
            offset = durable.result()
            if self._lost_to:
                promise.set_exception(_refusal())
                return
            if offset == self._newest + 1 and not self._waiting:
                self._newest = offset
                promise.set_result(offset)
                return
            self._waiting[offset] = promise
            self._target = max(self._target, offset)
            if self._reading:
                return
            self._reading = True
        Thread(target=self._read_between, name="sluicegate-fence", daemon=True).start()

    def _read_between(self) -> None:
        """Read from the last that is known on, until nothing waits."""
        reader: Reader | None = None
        silence = 0
        try:
            reader = self._log.reader(self._newest + 1)
            while silence < SILENCE_MAX:
                events = reader.read(_BATCH, _WAIT_US)
                silence = 0 if events else silence + 1
                with self._lock:
                    for event in events:
                        if event.offset > self._newest and not self._lost_to:
                            self._take(event)
                    read = self._newest >= self._target or reader.at_end
                    if self._lost_to or (read and not self._waiting):
                        self._reading = False
                        return
            raise Unavailable("the history", "what others wrote into its log cannot be read")
        except SluicegateError as error:
            with self._lock:
                self._reading = False
                self._fail_waiting(error)
        finally:
            if reader is not None:
                reader.close()

    def _take(self, event: Event) -> None:
        self._newest = event.offset
        promise = self._waiting.pop(event.offset, None)
        try:
            fields = parse_object(event.body)
        except BadValue:  # a stranger's
            return
        counts = self._fence.admits(event, fields)
        if event.kind == CLAIM_KIND:
            if event.offset + 1 > self._claim:
                self._end(str(fields.get("node", "another node")))
        elif event.kind == QUESTION_KIND:
            self._log.append(ANSWER_KIND, encode_json({"claim": self._claim}), event.at_us)
        elif promise is not None:
            promise.set_result(event.offset)
        elif counts:
            self._found(event)

    def _end(self, node: str) -> None:
        self._lost_to = node
        _log.error("%s is the home of some channels now that this node had", node)
        self._fail_waiting(_refusal())
        self._lost(node)

    def _fail_waiting(self, error: SluicegateError) -> None:
        for promise in self._waiting.values():
            promise.set_exception(error)
        self._waiting.clear()


def _refusal() -> Refused:
    """It was not accepted, for certain: it will never be read."""
    return Refused(Decision(False, 0, RETRY_US, RETRY_US, HOME_UNAVAILABLE, RULE_ID))
