"""Units: request units for pixels, charged to the caller that has a variant made.

    1 RU a variant, and 1 RU for each million pixels that are decoded or their worth in pixels that
    are encoded

Time of processing goes by pixels: those that are decoded, and those that are encoded, of which a
format takes more time than another. A decoded pixel of a JPEG that is made smaller is the unit.

              decode JPEG    encode JPEG    PNG    WebP    GIF    AVIF (effort 3)
    ms/Mpx              6             14     62     112    450     451    libvips 8.18, one core
    cost                1              2     10      16     65      70

Before the work only the bytes of an original are known: a photo has about four pixels a byte.

A variant is charged its expected cost, and settled to its real cost when it is made
(`policies/quota/request_units.py`). It is refused as `quota_spent`, or as `cost_above_limit` if it
costs more than the whole quota. The first caller of a variant pays for it; callers that join, and
answers from memory or the store, cost nothing. No caller pays for comparing images for likeness.

Bounds: `CALLERS_MAX` callers with a budget, the others share one; the usage of `SHOWN` is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from sluicegate.contracts.decision import Decision
from sluicegate.contracts.image import Processed
from sluicegate.contracts.image_spec import ImageSpec
from sluicegate.contracts.request import Measured, Request
from sluicegate.kernels.cost_model import Weights
from sluicegate.kernels.space_saving import SpaceSaving
from sluicegate.kernels.verdict import Verdict
from sluicegate.policies.quota.budgets import Budget, TokenBudgets
from sluicegate.policies.quota.request_units import (
    RequestUnits,
    RequestUnitsPermit,
    RequestUnitsSettings,
)
from sluicegate.policies.quota.work_shape import WorkShape

CALLERS_MAX: Final = 10_000
SHOWN: Final = 100
ANONYMOUS: Final = "(anonymous)"
_ROW_PIXELS: Final = 1_000  # what the policy counts as rows are thousands of pixels here
_WEIGHTS: Final = Weights(1.0, _ROW_PIXELS / 1e6, 0.0, 0.0)
_RU_ALL: Final = 1 << 40
PIXELS_A_BYTE: Final = 4
ENCODE: Final[Mapping[str, int]] = {"jpeg": 2, "png": 10, "webp": 16, "gif": 65, "avif": 70}
_ENCODE_OTHER: Final = 16


def pixel_cost(decoded: int, encoded: int, form: str) -> int:
    """How many decoded pixels it is worth."""
    return decoded + encoded * ENCODE.get(form, _ENCODE_OTHER)


def expected_pixel_cost(size_bytes: int, width: int, height: int, form: str) -> int:
    """Estimate the same from the original's size in bytes; a side of 0 was not given."""
    decoded = size_bytes * PIXELS_A_BYTE
    if not width and not height:
        return pixel_cost(decoded, decoded, form)
    return pixel_cost(decoded, (width or height) * (height or width), form)


@final
class QuotaBudgets:
    """A budget a caller: one rate for all, but for those that are named."""

    def __init__(self, quota_ru: int, burst_s: int, named: Mapping[str, int]) -> None:
        self._named = {name: _budget(ru, burst_s, 1) for name, ru in named.items()}
        free = TokenBudgets(_RU_ALL, _RU_ALL, 0, callers_max=1)
        self._others = _budget(quota_ru, burst_s, CALLERS_MAX) if quota_ru else free

    def charge(self, caller: str, mru: int, now_us: int) -> Verdict:
        """Take from this caller's."""
        return self._of(caller).charge(caller, mru, now_us)

    def settle(self, caller: str, mru: int, now_us: int) -> int:
        """Correct this caller's."""
        return self._of(caller).settle(caller, mru, now_us)

    def payable_mru(self, caller: str, now_us: int) -> int:
        """The most that one charge can be."""
        return self._of(caller).payable_mru(caller, now_us)

    def _of(self, caller: str) -> Budget:
        return self._named.get(caller, self._others)


@final
class PixelUnits:
    """Charges variants, and knows what each caller had made."""

    def __init__(self, budget: Budget) -> None:
        settings = RequestUnitsSettings(name="images", weights=_WEIGHTS, estimates_max=0)
        self.units = RequestUnits(settings, budget=budget, shape_of=_shape_of)
        self.pixels = 0
        self._usage = SpaceSaving(SHOWN)

    def admit(
        self, request: Request, size_bytes: int, spec: ImageSpec, now_us: int
    ) -> tuple[Request, RequestUnitsPermit | Decision]:
        """Charge what it is expected to cost; the request to be measured is a copy."""
        copy = request.copy()
        copy.cost = expected_pixel_cost(size_bytes, spec.width, spec.height, spec.format)
        return copy, self.units.admit(copy, now_us)

    def measure(self, request: Request, made: Processed, service_us: int) -> None:
        """Say what it was, before its permit ends."""
        form = made.media_type.removeprefix("image/")
        pixels = pixel_cost(made.source_pixels, made.width * made.height * made.frames, form)
        request.measured = Measured(service_us, rows=_rows(pixels))
        self.pixels += pixels
        self._usage.update(request.caller or ANONYMOUS, _WEIGHTS.cost_mru(_rows(pixels), 0, 0.0))

    def usage_ru(self) -> dict[str, int]:
        """What callers had made, the heaviest first."""
        return {str(one.key): one.count // 1_000 for one in self._usage.top(SHOWN)}


def _budget(rate_ru: int, burst_s: int, callers_max: int) -> TokenBudgets:
    burst_ru = rate_ru * burst_s
    return TokenBudgets(rate_ru, burst_ru, burst_ru, callers_max=callers_max)


def _shape_of(request: Request) -> WorkShape:
    return WorkShape(_rows(request.cost))


def _rows(pixels: int) -> int:
    return -(-pixels // _ROW_PIXELS)
