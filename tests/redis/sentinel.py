"""A master and its replica, watched by three sentinels of which two must agree.

How they are set up, who is master, and how it changes lives here. The data servers are 1 and 2, the
sentinels 3 to 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from tests.engines.child import until
from tests.redis.builds import Build
from tests.redis.members import HOST, RedisMembers

SERVICE = "sluicegate"  # what the sentinels call their master
PAIR = range(1, 3)
SENTINELS = range(3, 6)
QUORUM = 2
FAILOVER_MS_MAX = 5_000
# Of a master that has just changed, a sentinel counts the silence from the change, and first asks
# it after 1 s: with 1 s here, a promotion may be followed by another, back.
DOWN_AFTER_MS = 2_000


class RedisSentinel(RedisMembers):
    """Two servers that change places, and three that decide it."""

    member = "member"

    def __init__(
        self,
        build: Build | None = None,
        *,
        durable: bool = False,
        password: str | None = None,
        down_after_ms: int = DOWN_AFTER_MS,
        settings: Sequence[str] = (),
    ) -> None:
        """The password is the pair's; sentinels ask for none."""
        size = len(PAIR) + len(SENTINELS)
        super().__init__(size, build, durable=durable, password=password, settings=settings)
        self.down_after_ms = down_after_ms
        self._in_haste = False

    @property
    def sentinels(self) -> list[tuple[str, int]]:
        """Every sentinel's address, also of one that is down just now."""
        return [(HOST, self.ports[number]) for number in SENTINELS]

    @property
    def url(self) -> str:
        """All sentinels, and the name of their master."""
        who = f":{quote(self.password, safe='')}@" if self.password else ""
        hosts = ",".join(f"{host}:{port}" for host, port in self.sentinels)
        return f"redis+sentinel://{who}{hosts}/{SERVICE}"

    # For tests.

    @property
    def master(self) -> int:
        """The number of the master, as the first sentinel that runs tells it."""
        return self._master(by=self._sentinels()[0])

    def failover(self) -> int:
        """Let the replica take over though the master lives; gives the new master's number.

        The old one takes itself for a master until a sentinel tells it otherwise, 8 to 10 s later;
        what it is told until then is lost. `await_ready` waits for that.
        """
        was, by = self.master, self._sentinels()[0]
        # Refused until the sentinel has seen that the replica is fit.
        order = partial(self.ask, "SENTINEL", "FAILOVER", SERVICE, number=by)
        until(order, "waiting for a sentinel to begin the failover", self.ready_s_max)
        return self.await_promotion(was)

    def await_promotion(self, was: int) -> int:
        """Return when all sentinels that run name another master than this one, and it agrees."""
        now = next(number for number in PAIR if number != was)

        def promoted() -> bool:
            named = {self._master(by) for by in self._sentinels()}
            return named == {now} and self._role(now)[0] == "master"

        until(promoted, f"waiting for member {now} to be master", self.ready_s_max)
        return now

    # What `Cluster` asks for.

    def heal(self) -> None:
        """As `RedisMembers` has it, with the old master demoted by us and not 8 s later."""
        self._in_haste = True
        try:
            super().heal()
        finally:
            self._in_haste = False

    def await_ready(self) -> None:
        if self._in_haste:
            self._demote_old_master()
        super().await_ready()

    def _demote_old_master(self) -> None:
        master = self.master
        for number in PAIR:
            if number != master:
                follow = partial(self.ask, "REPLICAOF", HOST, self.ports[master], number=number)
                until(follow, f"waiting for member {number} to follow {master}", self.ready_s_max)

    def _launch(self, number: int) -> None:
        # A sentinel asks its master for replicas at once, and then not for 10 s.
        if number == SENTINELS[0] and number not in self._children:
            until(self._in_sync, "waiting for the replica", self.ready_s_max)
        super()._launch(number)

    def _in_sync(self) -> bool:
        return bool(self._role(PAIR[0])[2])

    def _answers(self, number: int) -> bool:
        if number in PAIR:
            role, master = self._role(number), self.master
            if number == master:
                return bool(role[0] == "master")
            return bool(role[0] == "slave" and role[2:4] == [self.ports[master], "connected"])
        description = self._describe("MASTER", by=number)
        others = len(SENTINELS) - 1
        healthy = (
            description["flags"] == "master" and int(description["num-other-sentinels"]) == others
        )
        if not healthy or not self._members.issuperset(PAIR):
            return healthy
        (replica,) = self.ask("SENTINEL", "SLAVES", SERVICE, number=number)
        return pairs(replica)["flags"] == "slave"

    def _command(self, number: int) -> list[str]:
        return [*super()._command(number), *(["--sentinel"] if number in SENTINELS else [])]

    def _lines(self, number: int) -> list[str]:
        master = self.ports[PAIR[0]]
        if number in PAIR:
            follow = [] if number == PAIR[0] else [f"replicaof {HOST} {master}"]
            return [*super()._lines(number), *follow]
        auth = [f"sentinel auth-pass {SERVICE} {self.password}"] if self.password else []
        return [
            f"bind {HOST}",
            f"port {self.ports[number]}",
            f"dir {self._data(number)}",
            f"sentinel monitor {SERVICE} {HOST} {master} {QUORUM}",
            f"sentinel down-after-milliseconds {SERVICE} {self.down_after_ms}",
            f"sentinel failover-timeout {SERVICE} {FAILOVER_MS_MAX}",
            *auth,
        ]

    def _credentials(self, number: int) -> dict[str, Any]:
        return super()._credentials(number) if number in PAIR else {}

    def _tidy(self) -> None:
        self.await_ready()
        for number in PAIR:
            self.ask("SCRIPT", "FLUSH", number=number)
        self.ask("FLUSHALL", number=self.master)

    def _sentinels(self) -> list[int]:
        return [n for n in SENTINELS if n in self.alive and n not in self._paused]

    def _master(self, by: int) -> int:
        port = int(self.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE, number=by)[1])
        return next(number for number in PAIR if self.ports[number] == port)

    def _describe(self, what: str, by: int) -> dict[str, str]:
        return pairs(self.ask("SENTINEL", what, SERVICE, number=by))

    def _role(self, number: int) -> list[Any]:
        role: list[Any] = self.ask("ROLE", number=number)
        return role


def pairs(flat: list[str]) -> dict[str, str]:
    """Name, value, name, value: as a table."""
    return dict(zip(flat[::2], flat[1::2], strict=True))
