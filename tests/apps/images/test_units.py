"""Units: who has variants made pays for their pixels, and is refused when its quota is spent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sluicegate.apps.images.pipeline import Image
from sluicegate.apps.images.units import PixelUnits, QuotaBudgets, expected_pixel_cost, pixel_cost
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused
from sluicegate.contracts.reasons import COST_ABOVE_LIMIT, DEADLINE, QUOTA_SPENT
from sluicegate.contracts.request import Request
from tests.apps.images.origin_server import OriginServer, Page
from tests.apps.images.pictures import picture, sized
from tests.apps.images.service_parts import Parts, parts_of

Story = Callable[[OriginServer, Parts], Awaitable[None]]
BODY = picture(1, width=1_000, height=500)  # half a million pixels in a few thousand bytes


def run(folder: Path, story: Story, quota_ru: int, **named: int) -> None:
    async def play() -> None:
        async with OriginServer() as server, parts_of(folder) as parts:
            parts.pipeline.units = PixelUnits(QuotaBudgets(quota_ru, 1, named))
            for path in "ab":
                server.pages[f"/{path}"] = Page(BODY)
            await story(server, parts)

    asyncio.run(asyncio.wait_for(play(), 60))


async def ask(parts: Parts, url: str, width: int, caller: str) -> Image:
    return await parts.pipeline.image(url, sized(width), Request(url, caller=caller))


async def spend(parts: Parts, url: str, caller: str, width: int = 10) -> tuple[int, Decision]:
    """Ask for one variant after the other, until one is refused; how many were not."""
    for made in range(30):
        try:
            await ask(parts, url, width + made, caller)
        except Refused as refused:
            return made, refused.decision
    pytest.fail("nothing was refused")


def test_a_spent_quota_refuses_by_its_reason_and_fills_again(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        url = server.url("/a")
        made, decision = await spend(parts, url, "ann")
        assert decision.reason is QUOTA_SPENT
        assert 0 < decision.retry_after_us <= 10_000_000
        assert 3 <= made <= 8  # a variant costs 1.5 RU, of 5 and the last one's debt
        # Another caller is not kept from anything, and what is there costs nobody anything.
        await ask(parts, url, 39, "bob")
        for _ in range(50):
            await ask(parts, url, 10, "ann")
        parts.clock.advance(us=decision.retry_after_us + 10_000)  # a little dearer than that
        await ask(parts, url, 38, "ann")
        usage = parts.pipeline.units.usage_ru()
        assert list(usage) == ["ann", "bob"]
        assert usage["ann"] >= made

    run(tmp_path, story, 5)


def test_the_charge_is_settled_to_the_pixels_that_were_made(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        await ask(parts, server.url("/a"), 10, "ann")
        stats = parts.pipeline.units.units.stats()
        expected_mru = 1_000 + 1_000 * 500 // 1_000 + (10 * 5 * 10 + 999) // 1_000
        assert stats.charged_mru + stats.debited_mru - stats.refunded_mru == expected_mru
        assert stats.debited_mru > 0  # so few bytes promised fewer pixels

    run(tmp_path, story, 1_000)


def test_a_caller_has_the_quota_of_its_name(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        for width in range(10, 40):
            await ask(parts, server.url("/a"), width, "rich")
        made, _ = await spend(parts, server.url("/a"), "ann", 40)
        assert made < 9

    run(tmp_path, story, 5, rich=1_000)


def test_what_no_quota_can_pay_says_so(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        with pytest.raises(Refused) as raised:
            await ask(parts, server.url("/a"), 4_000, "ann")  # 16 million pixels at most
        assert raised.value.decision.reason is COST_ABOVE_LIMIT
        await ask(parts, server.url("/a"), 10, "ann")

    run(tmp_path, story, 5)


def test_who_waits_for_a_variant_under_way_pays_nothing(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        url = server.url("/a")
        await asyncio.gather(*(ask(parts, url, 10, f"caller-{at}") for at in range(50)))
        assert len(parts.processor.done) == 1
        assert len(parts.pipeline.units.usage_ru()) == 1

    run(tmp_path, story, 5)


def test_what_the_queue_refuses_is_given_back(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        url = server.url("/a")
        await ask(parts, url, 10, "bob")
        late = Request(url, caller="ann", deadline_us=parts.clock.now_us())
        for width in range(11, 60):
            with pytest.raises(Refused) as raised:
                await parts.pipeline.image(url, sized(width), late)
            assert raised.value.decision.reason is DEADLINE
        await ask(parts, url, 11, "ann")

    run(tmp_path, story, 5)


def test_without_a_quota_nothing_is_refused_and_all_is_counted(tmp_path: Path) -> None:
    async def story(server: OriginServer, parts: Parts) -> None:
        for width in range(10, 60):
            await ask(parts, server.url("/a"), width, "")
        assert parts.pipeline.units.usage_ru() == {"(anonymous)": 75}

    run(tmp_path, story, 0)


def test_pixel_cost_differs_by_format() -> None:
    costs = [pixel_cost(1_000, 100, form) for form in ("jpeg", "png", "webp", "avif")]
    assert costs == [1_200, 2_000, 2_600, 8_000]
    assert pixel_cost(1_000, 100, "auto") == pixel_cost(1_000, 100, "webp")


@pytest.mark.parametrize(
    ("width", "height", "encoded"),
    [(100, 50, 5_000), (100, 0, 10_000), (0, 100, 10_000), (0, 0, 4_000)],
)
def test_side_of_zero_is_expected_as_the_other_side(width: int, height: int, encoded: int) -> None:
    assert expected_pixel_cost(1_000, width, height, "jpeg") == pixel_cost(4_000, encoded, "jpeg")
