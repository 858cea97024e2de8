"""Balance: decides which host of a group gets the next call.

Two hosts are drawn and the less loaded one is taken (`kernels/two_choices.py`): the load is the
peak latency, or the age of the calls in flight if that is more, times how many there are. A failure
is entered as a latency of `penalty_us`, or of the Retry-After; without that, a host that fails fast
looks like the best there is, and takes everybody's traffic.

A host that the outlier doubts is given a call now and then, whatever its load, so that it is soon
known whether it fails: none that is CRITICAL, and no repeat of another call.

Whom `outlier` has ejected is not drawn; whom it has taken back starts slowly, and what its failures
were priced at is forgotten; if nearly all are out all are drawn. Hosts in `avoid` (where an earlier
attempt of the same work went) are passed over if there are others.

The permit has the `host` to call. A host that refuses for overload is busy: here that counts as a
failure, at its own Retry-After, though it is no reason to eject it. A quota's
refusal and a cancelled call count as nothing.

Cost: two draws and two exponentials. A change of who is in rebuilds one list. Bounds: `hosts_max`
hosts of the outlier's settings; six numbers each. A caller that never ends its permits makes a host
look busy for ever; permits must end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, final

from sluicegate.contracts.chance import Chance
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.permit import Outcome
from sluicegate.contracts.reasons import NO_HOST
from sluicegate.contracts.request import Request
from sluicegate.kernels.two_choices import HostLoad, LoadSettings, pick_two
from sluicegate.policies.client.call_result import ADMITS_ALL, CallResult, ResultKind
from sluicegate.policies.client.outlier import Outlier
from sluicegate.policies.settings import wrong_setting

RULE_ID: Final = "balance"
# A group without hosts has some again after `set_hosts`; there is nothing to compute.
NO_HOST_RETRY_US: Final = 1_000_000

_OUTCOME_KINDS: Final = {
    Outcome.SUCCESS: ResultKind.OK,
    Outcome.IGNORE: ResultKind.CANCELLED,
    Outcome.DROPPED: ResultKind.TIMED_OUT,
}
_NOTHING_AVOIDED: Final[tuple[str, ...]] = ()


@final
@dataclass(frozen=True, kw_only=True)
class BalanceSettings(LoadSettings):
    """How latency is forgotten and failures are priced, as the kernel has it."""

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except ValueError as error:
            raise wrong_setting(RULE_ID, error) from None


class BalanceStats(NamedTuple):
    """Calls given to a host, without one, under way; hosts, of which in use."""

    picked: int
    refused: int
    inflight: int
    hosts: int
    usable: int


@final
class _Host:
    __slots__ = ("load", "name", "weight")

    def __init__(self, name: str, load: HostLoad) -> None:
        self.name = name
        self.load = load
        self.weight = 1.0


@final
class Balance:
    """Sends each call to the less loaded of two hosts."""

    __slots__ = (
        "_chance",
        "_hosts",
        "_inflight",
        "_out",
        "_picked",
        "_refused",
        "_usable",
        "_version",
        "outlier",
        "settings",
    )

    def __init__(
        self,
        hosts: Iterable[str],
        chance: Chance,
        settings: BalanceSettings | None = None,
        outlier: Outlier | None = None,
    ) -> None:
        names = list(dict.fromkeys(hosts))
        self.settings = BalanceSettings() if settings is None else settings
        self.outlier = Outlier(names, chance) if outlier is None else outlier
        self._chance = chance
        self._hosts: dict[str, _Host] = {}
        self._usable: list[_Host] = []
        self._out: tuple[str, ...] = ()
        self._version = -1
        self._picked = self._refused = self._inflight = 0
        self.set_hosts(names, 0)

    def set_hosts(self, hosts: Iterable[str], now_us: int) -> None:
        """Replace the group; a host that stays keeps its load."""
        names = list(dict.fromkeys(hosts))
        self.outlier.set_hosts(names)
        previous = self._hosts
        self._hosts = {
            name: previous[name] if name in previous else _Host(name, HostLoad(self.settings))
            for name in names
        }
        self._usable = [host for host in self._usable if host.name in self._hosts]
        self._version = -1

    def admit(
        self, request: Request, now_us: int, avoid: Collection[str] = _NOTHING_AVOIDED
    ) -> BalancePermit | Decision:
        """A permit for a call to its `host`; refused only if there is no host at all."""
        hosts = self._usable_hosts(now_us)
        if avoid:
            hosts = [host for host in hosts if host.name not in avoid] or hosts
        count = len(hosts)
        if count == 0:
            self._refused += 1
            return Decision(False, 0, NO_HOST_RETRY_US, NO_HOST_RETRY_US, NO_HOST, RULE_ID)
        host = hosts[0]
        if count > 1:
            doubted = None if avoid else self._probe(request, now_us)
            host = self._less_loaded(hosts, now_us) if doubted is None else doubted
        host.load.start(now_us)
        self._picked += 1
        self._inflight += 1
        return BalancePermit(self, host, request.key, now_us)

    def stats(self) -> BalanceStats:
        """What was decided so far, and how things stand."""
        return BalanceStats(
            self._picked, self._refused, self._inflight, len(self._hosts), len(self._usable)
        )

    def _probe(self, request: Request, now_us: int) -> _Host | None:
        """A host that is to show whether it fails; by nothing that is CRITICAL."""
        if request.criticality is Criticality.CRITICAL:
            return None
        name = self.outlier.next_probe(now_us)
        return self._hosts[name] if name else None

    def _less_loaded(self, hosts: list[_Host], now_us: int) -> _Host:
        draw = self._chance.draw
        first, second = pick_two(len(hosts), draw(), draw())
        host, other = hosts[first], hosts[second]
        self._weigh(host, now_us)
        self._weigh(other, now_us)
        return other if host.load.is_above(other.load, now_us) else host

    def _usable_hosts(self, now_us: int) -> list[_Host]:
        """The hosts to draw from; the list changes only when one is ejected or comes back."""
        outlier = self.outlier
        names = self._hosts
        if names:
            outlier.weight(next(iter(names)), now_us)  # has it sweep, if it is time
        if outlier.version != self._version:
            self._version = outlier.version
            for name in self._out:
                if name in names and name not in outlier.out:
                    names[name].load.forget()  # what it did before must not keep it out for longer
            self._out = outlier.out
            self._usable = [
                host for name, host in names.items() if outlier.weight(name, now_us) > 0.0
            ]
        return self._usable

    def _weigh(self, host: _Host, now_us: int) -> None:
        """A host that has just come back weighs more from call to call."""
        weight = self.outlier.weight(host.name, now_us)
        if weight != host.weight and weight > 0.0:
            host.weight = weight
            host.load.set_weight(weight)

    def _record_late(self, host: _Host, began_us: int, now_us: int) -> None:
        self._inflight -= 1
        host.load.succeed(began_us, now_us)
        self.outlier.record_late(host.name, now_us - began_us, now_us)

    def _record_end(
        self, host: _Host, result: CallResult[object], key: str, began_us: int, now_us: int
    ) -> None:
        self._inflight -= 1
        kind = result.kind
        handed_on = kind is ResultKind.OVERLOADED and result.admitted_permille == ADMITS_ALL
        if handed_on or kind is ResultKind.CANCELLED or kind is ResultKind.LIMITED:
            host.load.cancel(began_us)
            return
        if result.is_failure or kind is ResultKind.OVERLOADED:
            host.load.fail(began_us, now_us, result.retry_after_us)
        else:
            host.load.succeed(began_us, now_us)
        self.outlier.record(host.name, result, now_us - began_us, key, now_us)


@final
class BalancePermit:
    """A call to `host`, to be ended with its result."""

    __slots__ = ("_began_us", "_ended", "_host", "_key", "_policy", "host")

    def __init__(self, policy: Balance, host: _Host, key: str, now_us: int) -> None:
        self._policy = policy
        self._host = host
        self._key = key
        self._began_us = now_us
        self._ended = False
        self.host = host.name

    def end(self, outcome: Outcome, now_us: int, *, spent: bool = True) -> bool:
        """End it; DROPPED is entered as a time-out, what was never sent as nothing."""
        kind = _OUTCOME_KINDS[outcome] if spent else ResultKind.CANCELLED
        return self.end_with(CallResult(kind), now_us)

    def end_with(self, result: CallResult[object], now_us: int) -> bool:
        """End it with the result of the call."""
        if self._ended:
            return False
        self._ended = True
        self._policy._record_end(self._host, result, self._key, self._began_us, now_us)
        return True

    def end_late(self, now_us: int) -> bool:
        """End it without a result, for another was quicker: as slow as that, and no success."""
        if self._ended:
            return False
        self._ended = True
        self._policy._record_late(self._host, self._began_us, now_us)
        return True
