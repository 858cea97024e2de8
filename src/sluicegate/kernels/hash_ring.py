"""Hash ring: which node a key belongs to, agreed on by everyone who knows the nodes' names.

Two forms. *Rendezvous* is Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit Rates"
(1998), with the logarithmic weights of Schindelhauer and Schomaker, "Weighted Distributed Hash
Tables" (2005): every node draws a number for the key, and the best draw owns it.

    u = hash(key, node) in (0, 1)        owner = the node with the least  -ln(u) / weight

-ln(u) / weight is an exponential variable of that rate, so a node wins with the share
weight / (sum of weights), and is second, third ... as if those before it were not there. *Ketama*
is the ring of libketama (Jones, 2007) over Karger et al., "Consistent Hashing and Random Trees"
(1997): each node has 160 points on a circle of 2^32, and a key belongs to the next point.

Either way a node that leaves gives up its own keys and moves no other, a node that comes or grows
only takes, and the next in rank is where a key goes when its owner is gone: ask for two and fail
over to the second. Rendezvous is the default: it is balanced, weights are exact, and it needs no
table. Ketama is for many nodes, and for those who share a ring with memcached clients.

How much more and less than its fair share the heaviest and the lightest node got of 200,000 keys,
and microseconds an owner costs, compiled and interpreted:

                       10 nodes                           100 nodes
    rendezvous     +1.0%   -1.0%   0.8   5.3         +6.0%    -4.4%   1.5   46
    ketama         +9.6%  -12.7%   0.9   1.1        +18.1%   -23.3%   1.0   1.1

(Chance alone is 0.7% and 2.2% either way, for an ordinary node. Unequal weights make rendezvous
half as dear again, and twice at 100 nodes.)

What was changed. Hashing key and node together costs a digest a node. Here a key is digested once
(BLAKE2b; never Python's `hash`, which differs in every process), a node's name once when the ring
is made, and the two are mixed by two rounds of multiplication on 30-bit halves, which stay below
2^62, so that a machine integer and Python's agree. Equal weights need no logarithm, and equal draws
go to the lesser name. libketama scales a node's points by the mean weight, so that a change of one
weight moves points of all; here weight 1 is 160 points, always. Points and keys are placed as it
places them, so with equal weights its clients find the same owners.

*Bounded loads* (Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2018):
`pick_bounded` passes over nodes that already carry `factor` times their fair share.

Cost: rendezvous O(nodes) an owner, O(nodes log nodes) a full ranking; ketama one MD5 and one binary
search an owner. A ring is never changed: make a new one.
Bounds: 1 to `NODES_MAX` nodes, weights from `WEIGHT_MIN` to `WEIGHT_MAX`.
Not good at: secrecy (anyone can compute an owner, and pick keys that share one), one hot key.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from hashlib import blake2b, md5
from math import ceil, inf, log
from typing import Final, final

from sluicegate.kernels.native import i64

NODES_MAX: Final = 1024
WEIGHT_MIN: Final = 0.01
WEIGHT_MAX: Final = 100.0
POINTS_PER_NODE: Final = 160
_HALF: Final = (1 << 30) - 1
_SIXTY: Final = (1 << 60) - 1
_DRAWS: Final = 1 << 52


def digest(key: str | bytes) -> int:
    """A key or a name as 60 bits, the same in every process; a string as its UTF-8."""
    data = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big") >> 4


def mix(key: int, node: int) -> int:
    """The draw of a node for a key, from two digests: 52 bits."""
    bits: i64 = (key ^ node) & _SIXTY
    bits = (bits & _HALF) * 0x2C1B3C6D + (bits >> 30) * 0x297A2D39
    bits ^= bits >> 31
    bits = (bits & _HALF) * 0x1B873593 + (bits >> 30) * 0x2545F491
    return (bits ^ (bits >> 32)) & (_DRAWS - 1)


@final
class Rendezvous:
    """Nodes by weight; each draws for a key, and the best draw owns it."""

    __slots__ = ("_even", "_names", "_seeds", "_weights", "weights")

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.weights = _check_weights(weights)
        self._names = list(self.weights)
        self._weights = list(self.weights.values())
        self._seeds = [digest(name) for name in self._names]
        self._even = len(set(self._weights)) == 1

    def owner(self, key: str | bytes) -> str:
        """The node that `key` belongs to."""
        key60 = digest(key)
        best, at = 0, 0
        if self._even:
            most = -1
            for seed in self._seeds:
                draw = mix(key60, seed)
                if draw > most:
                    best, most = at, draw
                at += 1
            return self._names[best]
        least = inf
        for weight in self._weights:
            score = _score(key60, self._seeds[at], weight)
            if score < least:
                best, least = at, score
            at += 1
        return self._names[best]

    def rank(self, key: str | bytes, count: int) -> list[str]:
        """The first `count` nodes for `key`: its owner, who stands in for it, and so on."""
        key60 = digest(key)
        if self._even:
            scores = [-float(mix(key60, seed)) for seed in self._seeds]
        else:
            scores = [
                _score(key60, seed, weight)
                for seed, weight in zip(self._seeds, self._weights, strict=True)
            ]
        order = sorted(range(len(scores)), key=scores.__getitem__)
        return [self._names[at] for at in order[: max(count, 0)]]


@final
class Ketama:
    """Nodes as points on a circle, 160 for a weight of 1; the next point owns a key."""

    __slots__ = ("_names", "_points", "weights")

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.weights = _check_weights(weights)
        points: list[tuple[int, str]] = []
        for name, weight in self.weights.items():
            for part in range(max(1, round(weight * POINTS_PER_NODE / 4))):
                sum16 = md5(
                    f"{name}-{part}".encode("utf-8", "surrogatepass"), usedforsecurity=False
                ).digest()
                points.extend(
                    (int.from_bytes(sum16[start : start + 4], "little"), name)
                    for start in (0, 4, 8, 12)
                )
        points.sort()
        self._points = [point for point, _ in points]
        self._names = [name for _, name in points]

    def owner(self, key: str | bytes) -> str:
        """The node that `key` belongs to."""
        return self._names[self._start(key)]

    def rank(self, key: str | bytes, count: int) -> list[str]:
        """The first `count` nodes for `key`, as the circle meets them."""
        count = min(count, len(self.weights))
        names = self._names
        at = self._start(key)
        met: list[str] = []
        while len(met) < count:
            name = names[at]
            if name not in met:
                met.append(name)
            at = at + 1 if at + 1 < len(names) else 0
        return met

    def _start(self, key: str | bytes) -> int:
        data = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
        sum16 = md5(data, usedforsecurity=False).digest()
        at = bisect_left(self._points, int.from_bytes(sum16[:4], "little"))
        return at if at < len(self._points) else 0


def pick_bounded(
    ranked: Sequence[str],
    weights: Mapping[str, float],
    loads: Mapping[str, int],
    factor: float = 1.25,
) -> str:
    """The first of `ranked` that carries less than `factor` times its fair share, the new one in.

    Some node always does, if all are ranked; of a part that is all full, the first is returned.
    """
    if not 1.0 <= factor < inf:
        raise ValueError(f"factor must be finite and at least 1, not {factor}")
    share = factor * (sum(loads.values()) + 1) / sum(weights.values())
    for name in ranked:
        if loads.get(name, 0) < ceil(share * weights[name]):
            return name
    return ranked[0]


def _score(key60: int, seed: int, weight: float) -> float:
    """An exponential variable of rate `weight`; half a step keeps the draw off 0 and 1."""
    return -log((mix(key60, seed) + 0.5) / _DRAWS) / weight


def _check_weights(weights: Mapping[str, float]) -> dict[str, float]:
    """The weights in the order of their names, so that the order they came in means nothing."""
    if not 1 <= len(weights) <= NODES_MAX:
        raise ValueError(f"weights must name from 1 to {NODES_MAX} nodes, not {len(weights)}")
    for name, weight in weights.items():
        if not WEIGHT_MIN <= weight <= WEIGHT_MAX:
            raise ValueError(
                f"weights[{name!r}] must be from {WEIGHT_MIN} to {WEIGHT_MAX}, not {weight}"
            )
    return {name: float(weights[name]) for name in sorted(weights)}
