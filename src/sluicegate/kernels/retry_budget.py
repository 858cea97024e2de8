"""Retry budget: retries may be a share of the traffic, never a multiple of it.

Source: the retry budget of Twitter's Finagle (`RetryBudget`, 2016): each request pays a little in,
each retry takes one whole token out, and what was paid in or taken out is forgotten after a window.

`RetryBudget` counts milli-tokens, a retry costs 1000 of them, and a retry is granted while

    paid in + reserve - taken out >= 1000        over the slices of the window still remembered

so at every retry the retries of the last `slices` slices are at most those slices' deposits plus
the reserve. The reserve lets a caller with little traffic retry at all.

What was changed: integers throughout, so no rounding builds up; the slices lie on the clock, so the
same calls give the same answers wherever they start; what one slice may take in is bounded, which
bounds the balance without spoiling the window (a bound on the sum would reject deposits that are
needed when the oldest slice expires). The default reserve is one retry a second where Finagle has
ten, because a reserve is per budget: ten a second in each of a thousand clients is a storm of ten
thousand a second, however small their ratio.

Not good at: deciding which retry is worth it. Keep one budget per backend and class of work, or the
retries of bulk work spend what critical work needs. A rested budget grants its reserve at once.

A clock that goes backwards leaves the current slice current; nothing expires early or twice.

Cost: a division and two additions a call; a step into a new slice forgets one old one.
Bounds: `slices` integers; the balance never passes `balance_max` retries beyond the reserve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from sluicegate.kernels.bounds import check_ranges, ranged

RETRY_MILLI: Final = 1_000
DEPOSIT_MILLI_MAX: Final = 10_000
RESERVE_MILLI_MAX: Final = 1 << 40
WINDOW_US_MAX: Final = 86_400_000_000
SLICES_MAX: Final = 1_000
BALANCE_MAX: Final = 1 << 40


@dataclass(frozen=True, kw_only=True)
class RetryShareSettings:
    """The share of the traffic that retries may be, and a reserve.

    `deposit_milli` is what a request pays in (100 allows one retry in ten requests),
    `reserve_milli_per_s` what is granted without any (1000 is one retry a second).
    """

    deposit_milli: int = ranged(100, 0, DEPOSIT_MILLI_MAX)
    reserve_milli_per_s: int = ranged(1_000, 0, RESERVE_MILLI_MAX)
    window_us: int = 10_000_000
    slices: int = ranged(10, 1, SLICES_MAX)
    balance_max: int = ranged(100_000, 1, BALANCE_MAX)

    def __post_init__(self) -> None:
        check_ranges(self)
        if not self.slices <= self.window_us <= WINDOW_US_MAX or self.window_us % self.slices:
            raise ValueError(
                f"window_us must be a multiple of slices ({self.slices}), at most a day, "
                f"not {self.window_us}"
            )


@final
class RetryBudget:
    """A balance of retries that requests pay for and time forgets."""

    __slots__ = (
        "_deposit_milli",
        "_deposited",
        "_net",
        "_reserve",
        "_slice",
        "_slice_deposit_max",
        "_slice_us",
        "_slices",
        "_sum",
    )

    def __init__(self, settings: RetryShareSettings | None = None) -> None:
        settings = RetryShareSettings() if settings is None else settings
        slices = settings.slices
        self._deposit_milli = settings.deposit_milli
        self._reserve = settings.reserve_milli_per_s * settings.window_us // 1_000_000
        self._slice_us = settings.window_us // slices
        self._slices = slices
        self._slice_deposit_max = settings.balance_max * RETRY_MILLI // slices
        self._net: list[int] = [0] * slices  # paid in less taken out, in milli-tokens, a slice
        self._sum = 0  # of `_net`
        self._slice = 0  # the current slice's number since the clock's zero
        self._deposited = 0  # paid into the current slice

    def deposit(self, now_us: int, requests: int = 1) -> None:
        """Pay in for `requests` first attempts (not for retries)."""
        if requests < 0:
            raise ValueError(f"requests must be 0 or more, not {requests}")
        self._advance(now_us)
        paid = requests * self._deposit_milli
        room = self._slice_deposit_max - self._deposited
        if paid > room:
            paid = room
        self._deposited += paid
        self._net[self._slice % self._slices] += paid
        self._sum += paid

    def withdraw(self, now_us: int) -> bool:
        """Take one retry out, if the balance has it."""
        self._advance(now_us)
        if self._sum + self._reserve < RETRY_MILLI:
            return False
        self._net[self._slice % self._slices] -= RETRY_MILLI
        self._sum -= RETRY_MILLI
        return True

    def balance(self, now_us: int) -> int:
        """How many retries would be granted at once."""
        self._advance(now_us)
        left = self._sum + self._reserve
        return left // RETRY_MILLI if left > 0 else 0

    def _advance(self, now_us: int) -> None:
        current = now_us // self._slice_us
        if current <= self._slice:
            return
        slices = self._slices
        net = self._net
        if current - self._slice >= slices:
            for position in range(slices):
                net[position] = 0
            self._sum = 0
        else:
            for entered in range(self._slice + 1, current + 1):
                position = entered % slices
                self._sum -= net[position]
                net[position] = 0
        self._slice = current
        self._deposited = 0
