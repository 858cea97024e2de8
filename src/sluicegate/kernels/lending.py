"""Lending: an amount shared out among those who have a guarantee, and lent where it is not used.

Each child has a guarantee, a ceiling, a weight and a demand. What one does not demand of its
guarantee is lent to those who demand more than theirs, by weight, up to their ceilings. Source: the
borrowing of hierarchical token buckets (Devera, "HTB", 2002) and max-min fairness (Bertsekas and
Gallager, "Data Networks", 1987), done once an epoch over whole numbers instead of at each packet.

    1  guarantees     each gets min(demand, guarantee), and `kept` thousandths of its guarantee
                      whatever it demands, so that who comes back is never refused outright
    2  lending        what is left fills those who want more, by weight, each to min(demand,
                      ceiling): by rounds, for what one cannot take is shared by the others

What nobody demands is not shared out: it is the pool that any of them may still draw from. If the
guarantees are more than the amount, each is cut in proportion.

Kept by construction, and by tests: the sum is at most the amount; nobody gets more than
its ceiling; who demands its guarantee or more gets at least that; and with demands as they are,
nobody can get more without another who has no more by weight getting less.

Cost: n rounds of n at worst, two or three mostly; once an epoch. Bounds: the children given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class QuotaClaim(NamedTuple):
    """What one child may claim of an epoch's amount, and does."""

    guarantee: int
    ceiling: int
    weight: int
    demand: int


def share_out(amount: int, claims: Sequence[QuotaClaim], kept_milli: int) -> list[int]:
    """What each gets; the rest of `amount` is nobody's yet."""
    guaranteed = sum([claim.guarantee for claim in claims])
    parts: list[int] = []
    for claim in claims:
        guarantee = claim.guarantee
        if guaranteed > amount:
            guarantee = guarantee * amount // guaranteed
        own = claim.demand if claim.demand < guarantee else guarantee
        reserve = guarantee * kept_milli // 1_000
        part = own if own > reserve else reserve
        parts.append(part if part < claim.ceiling else claim.ceiling)
    _lend(amount - sum(parts), claims, parts)
    return parts


def _lend(rest: int, claims: Sequence[QuotaClaim], parts: list[int]) -> None:
    """Fill those who want more, by weight, as long as there is anything."""
    while rest > 0:
        hungry = [place for place, claim in enumerate(claims) if parts[place] < _most(claim)]
        if not hungry:
            return
        weights = sum([claims[place].weight for place in hungry])
        level = rest  # of this round: each takes its weight's part of it
        for place in hungry:
            claim = claims[place]
            piece = level * claim.weight // weights
            if piece == 0:
                piece = 1  # What no longer divides goes one by one.
            lacking = _most(claim) - parts[place]
            piece = min(piece, lacking, rest)
            parts[place] += piece
            rest -= piece
            if rest == 0:
                return


def _most(claim: QuotaClaim) -> int:
    return claim.demand if claim.demand < claim.ceiling else claim.ceiling
