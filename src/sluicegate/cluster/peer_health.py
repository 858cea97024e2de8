"""Peer health: which peers answer, which are dead for certain, and whom to ask.

A peer that has not answered for `gone_s` is master of nothing until it answers. If nothing listens
where it was, it is dead, and what it could admit is the others'; else it may be cut off and
serving. While there is such a one the others are asked in turn, too: the network may be divided.

Instants are the loop's, in seconds; nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import cycle, islice
from typing import Final, NamedTuple, final

PROBE_S: Final = 0.25
ASKED_MAX: Final = 8  # of those that answer, at each probe while one does not


class PeerChoice(NamedTuple):
    """Among whom masters are chosen, and who is dead for certain."""

    live: frozenset[str]
    dead: frozenset[str]


@final
class PeerHealth:
    """Of all peers of a node."""

    def __init__(self, gone_s: float) -> None:
        self.failing: dict[str, str] = {}  # who does not answer, and why
        self._gone_s = gone_s
        self._since: dict[str, float] = {}  # when each of them began to
        self._dead: set[str] = set()
        self._suspects: set[str] = set()
        self._names: Collection[str] = ()
        self._rounds: Iterator[str] = iter(())
        self._chosen: PeerChoice | None = None
        self._probed_s = 0.0

    def change(self, names: Collection[str], moved: Collection[str]) -> None:
        """Take over who there is; of those that have `moved` nothing is known."""
        self._names = names
        self._rounds = cycle(list(names))
        self._chosen = None
        for name in moved:
            self.answer(name)

    def answer(self, name: str) -> bool:
        """One has answered; whether it did not before."""
        self._since.pop(name, None)
        self._dead.discard(name)
        return self.failing.pop(name, None) is not None

    def fail(self, name: str, why: str, now_s: float) -> bool:
        """One has not answered; whether it did before."""
        if name in self.failing or name not in self._names:
            return False
        self.failing[name] = why
        self._since[name] = now_s
        return True

    def find_dead(self, name: str, *, dead: bool) -> None:
        """Nothing listens where one was; or something does, or nobody can tell."""
        if dead:
            self._dead.add(name)
        else:
            self._dead.discard(name)

    def suspect(self, names: Collection[str]) -> None:
        """Find out whether these answer: they owe something else an answer for long."""
        self._suspects.update(names)

    def choose(self, now_s: float) -> PeerChoice | None:
        """Among whom masters are chosen from now on; None if nothing has changed."""
        last_s = now_s - self._gone_s
        live = frozenset(one for one in self._names if self._since.get(one, last_s + 1) > last_s)
        choice = PeerChoice(live, frozenset(self._dead) & (set(self._names) - live))
        if choice == self._chosen:
            return None
        self._chosen = choice
        return choice

    def is_probe_due(self, now_s: float) -> bool:
        """Whether it is time for the next probe."""
        if now_s - self._probed_s < PROBE_S:
            return False
        self._probed_s = now_s
        return True

    def next_asked(self) -> list[str]:
        """Who is asked by this probe, whether it answers or answers again."""
        if self._since.keys() - self._dead:
            self._suspects.update(islice(self._rounds, min(ASKED_MAX, len(self._names))))
        asked = (self._since.keys() | self._suspects) & set(self._names)
        self._suspects.clear()
        return sorted(asked)
