"""Suppression: hold an account to its limit across a cluster by rejecting a fraction everywhere.

Source: Ably, "Building a distributed rate limiter that scales horizontally" (Woolf). One node adds
up what all nodes report of an account and answers each report with a factor; every node then
rejects that fraction of the account's operations by itself. No operation waits for another node.

Our factor is the fraction to REJECT. The source calls it both that and the probability of being
permitted; with 0.5, its example, one cannot tell. Here 0.2 rejects 20% and admits 80%.

    exact     factor = 1 - limit / attempted          0 up to the limit; the default
    linear    factor = (rate / limit - 1) / (ramp - 1)        0 at the limit, 1 at `ramp` times it

`attempted` is what would have passed had nothing been rejected: rejected operations are counted
too, in the messages they would have made. That is the whole trick, for then the factor does not
depend on itself. Taken from what was *accepted* the same formula has its rest at accepted =
sqrt(attempted * limit), 3.16 limits at ten times the limit, and does not even rest: it swings
between 1 and 10. `linear` is the source's first attempt, fed with the accepted rate; under a
deluge it swings from all to nothing with the period of the average. Both are shown in the tests.
Feed either form with `attempted`, and mark or leave out retries, which inflate it.

An account within its limit is never suppressed, however close it comes. A limit of L a second with
a burst of B means at most L * t + B in any span t, so a rate measured over a window may show up to
L + B / window and still conform: `burst_allowance` is that B / window. The kernel is told B with
the limit; the caller works out one allowance for each window it measures (24 s and 1 s, say), one
factor for each, and takes the greatest. Above it the factor is for the bare limit: the burst is
spent.

How a node rejects: `flip` is one coin an operation, whatever its weight, so each has the same
chance; the count wanders by sqrt(n). `Diffusion` carries the rounding error over to the next
operation instead, in whole billionths, so that after any number of operations the admitted messages
are within one operation of what the factor asks. Operations of similar weight (the same highest
bit) share a lane, and each lane gets its fraction: in one lane for all, a rare heavy operation
would find its credit spent by light ones, for ever. What it is not good at: callers who take turns
in step with it. Of two who alternate at 0.5, one gets everything. Give each channel its own, or
flip.

When the factor's source falls silent, `silent_factor` keeps what the node had: the rate that
it admitted when it last heard, not the factor, for a factor of 0 would let a surge pass. After
`hold_us` that goes over in `decay_us` to an equal share, limit / nodes, which it may always have:
the sum over all nodes is then within the limit, whoever is cut off, and too strict where load is
uneven. Meanwhile the nodes that are cut off and the others have twice the limit at the very most
together.

Cost: a few operations on floats; an admission is a coin, or one addition of integers.
Bounds: rates to 2^53, weights to 2^53, a lane for each bit of weight. Staleness costs: a factor d
seconds late lets pass (attempted / limit - 1) * d limits too many, once, at a step.
"""

from __future__ import annotations

from typing import Final, final

RATE_MAX: Final = float(1 << 53)
WEIGHT_MAX: Final = 1 << 53
SPAN_US_MAX: Final = 1 << 53
NODES_MAX: Final = 1 << 20
PARTS: Final = 1_000_000_000
# Rates are quotients of floats: a difference below this share of them is rounding, not excess.
_ROUNDING: Final = 1e-9


def exact_factor(attempted: float, limit: float, allowance: float = 0.0) -> float:
    """The fraction to reject so that just `limit` of `attempted` passes, all three a second."""
    _check_rate("attempted", attempted, 0.0)
    _check_limit(limit)
    _check_rate("allowance", allowance, 0.0)
    if attempted <= (limit + allowance) * (1.0 + _ROUNDING):
        return 0.0
    return 1.0 - limit / attempted


def linear_factor(rate: float, limit: float, ramp: float = 3.0) -> float:
    """The source's first attempt: nothing rejected at the limit, everything at `ramp` times it."""
    _check_rate("rate", rate, 0.0)
    _check_limit(limit)
    if not 1.0 < ramp <= RATE_MAX:
        raise ValueError(f"ramp must be above 1 and at most 2^53, not {ramp}")
    return min(1.0, max(0.0, (rate / limit - 1.0) / (ramp - 1.0)))


def burst_allowance(burst: int, window_us: int) -> float:
    """What a burst adds to the rate, a second, that a conforming account can show in a window."""
    if not 0 <= burst <= WEIGHT_MAX:
        raise ValueError(f"burst must be from 0 to 2^53, not {burst}")
    _check_span("window_us", window_us, 1)
    return burst * 1_000_000 / window_us


def silent_factor(
    kept: float,
    silence_us: int,
    attempted: float,
    limit: float,
    nodes: int,
    *,
    hold_us: int,
    decay_us: int,
) -> float:
    """The factor of a node that last heard one `silence_us` ago, and admitted `kept` a second then.

    `attempted` is its own rate now. A silence below zero, from a clock that went back, is none.
    """
    _check_rate("kept", kept, 0.0)
    if not 1 <= nodes <= NODES_MAX:
        raise ValueError(f"nodes must be from 1 to 2^20, not {nodes}")
    _check_span("hold_us", hold_us, 0)
    _check_span("decay_us", decay_us, 0)
    share = limit / nodes
    decayed_us = silence_us - hold_us
    if decayed_us >= decay_us and decayed_us > 0:
        kept = share
    elif decayed_us > 0:
        kept += (share - kept) * (decayed_us / decay_us)
    return exact_factor(attempted, max(kept, share))


def flip(factor: float, draw: float) -> bool:
    """Whether one operation is admitted, by a coin: a `draw` from 0 to below 1."""
    _check_factor(factor)
    if not 0.0 <= draw < 1.0:
        raise ValueError(f"draw must be from 0 to below 1, not {draw}")
    return draw >= factor


@final
class Diffusion:
    """Rejects the factor's fraction exactly, in even order.

    `phase`, from 0 to below 1, is how much of a first operation is there already. Nodes that all
    start alike would all reject their first; give each a draw, and they are fair from the first.
    """

    __slots__ = ("_credits",)

    def __init__(self, phase: float = 0.5) -> None:
        if not 0.0 <= phase < 1.0:
            raise ValueError(f"phase must be from 0 to below 1, not {phase}")
        start = int(phase * PARTS)
        # Lane n holds weights of n bits; it starts with that share of its lightest operation.
        self._credits = [start << lane >> 1 for lane in range(WEIGHT_MAX.bit_length() + 1)]

    def admit(self, factor: float, weight: int = 1) -> bool:
        """Whether one operation of `weight` messages is admitted."""
        if not 1 <= weight <= WEIGHT_MAX:
            raise ValueError(f"weight must be from 1 to 2^53, not {weight}")
        _check_factor(factor)
        if factor == 0.0:  # nearly always: an account within its limit
            return True
        lane = weight.bit_length()
        full = PARTS * weight
        credit = self._credits[lane] + full - round(factor * PARTS) * weight
        admitted = credit >= full
        if admitted:
            credit -= full
        self._credits[lane] = credit
        return admitted


def _check_factor(factor: float) -> None:
    if not 0.0 <= factor <= 1.0:
        raise ValueError(f"factor must be from 0 to 1, not {factor}")


def _check_rate(name: str, rate: float, low: float) -> None:
    if not low <= rate <= RATE_MAX:
        raise ValueError(f"{name} must be from {low:g} to 2^53, not {rate}")


def _check_limit(limit: float) -> None:
    if not 0.0 < limit <= RATE_MAX:
        raise ValueError(f"limit must be above 0 and at most 2^53, not {limit}")


def _check_span(name: str, span_us: int, low: int) -> None:
    if not low <= span_us <= SPAN_US_MAX:
        raise ValueError(f"{name} must be from {low} to 2^53, not {span_us}")
