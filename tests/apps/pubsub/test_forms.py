"""The forms of suppression that a setting chooses, in the running service."""

from __future__ import annotations

import asyncio
import time
from itertools import groupby
from pathlib import Path

import pytest

from sluicegate.apps.pubsub.node_settings import master_settings, suppress_settings
from sluicegate.apps.pubsub.settings import PubSubSettings
from sluicegate.client.pubsub import PubSubClient
from sluicegate.contracts.decision import Decision
from sluicegate.contracts.errors import Refused
from tests.apps.pubsub.process import PubSubProcess, Subscriber

RATE = 100
BASE = ("--account-rate", str(RATE), "--channel-rate", "0", "--node-ratio", "0")


def publish_many(server: PubSubProcess, count: int, per_s: float) -> list[Decision | None]:
    """What came of each, in the order in which they were sent; None is accepted."""

    async def story() -> list[Decision | None]:
        outcomes: list[Decision | None] = [None] * count
        url = f"ws://127.0.0.1:{server.port}"
        async with PubSubClient(url, timeout_ms=60_000) as client:

            async def publish(number: int) -> None:
                try:
                    await client.publish("news", number)
                except Refused as refused:
                    outcomes[number] = refused.decision

            loop = asyncio.get_running_loop()
            began_s, tasks = loop.time(), []
            for number in range(count):
                await asyncio.sleep(max(began_s + number / per_s - loop.time(), 0))
                tasks.append(asyncio.create_task(publish(number)))
            await asyncio.gather(*tasks)
        return outcomes

    return asyncio.run(story())


def longest_run(outcomes: list[Decision | None]) -> int:
    """Of accepted ones, when a share of them is refused."""
    settled = outcomes[len(outcomes) // 2 :]
    return max(
        (len(list(run)) for kept, run in groupby(settled, lambda one: one is None) if kept),
        default=0,
    )


@pytest.mark.prove
def test_by_error_diffusion_refusals_are_even_and_by_a_coin_they_are_not(tmp_path: Path) -> None:
    longest = {}
    for form in ("error-diffusion", "coin"):
        folder = tmp_path / form
        folder.mkdir()
        with PubSubProcess(folder, *BASE, "--suppression", form) as server:
            outcomes = publish_many(server, 1_500, 4 * RATE)
        accepted = sum(one is None for one in outcomes[750:])
        assert 100 < accepted < 300  # a quarter, of 750
        longest[form] = longest_run(outcomes)
    assert longest["error-diffusion"] <= 2 < longest["coin"]


@pytest.mark.prove
def test_the_sources_estimates_can_be_chosen(tmp_path: Path) -> None:
    """Forty limits at once: the ladder sees them in a second, the source's forms in 24 s a part."""
    refused = {}
    for form in ("ladder", "mean", "linear"):
        folder = tmp_path / form
        folder.mkdir()
        with PubSubProcess(folder, *BASE, "--estimate", form) as server:
            outcomes = publish_many(server, 4_000, 4_000)
        refused[form] = sum(one is not None for one in outcomes[-1_000:]) / 1_000
    assert refused["ladder"] > 0.8
    assert 0.05 < refused["mean"] < 0.8
    assert 0.05 < refused["linear"] < 0.8


def test_a_channel_that_alone_is_over_its_accounts_limit_is_held_at_once(tmp_path: Path) -> None:
    """No master has said a word: it is asked once a minute. The control has no such bound."""
    flags = (*BASE, "--report-s", "60")
    accepted = {}
    for ratio in ("1", "0"):
        folder = tmp_path / ratio
        folder.mkdir()
        with (
            PubSubProcess(folder, *flags, "--channel-ratio", ratio) as server,
            Subscriber(server, "news"),  # each costs two
        ):
            began_s = time.monotonic()
            outcomes = publish_many(server, 200, 1_000)
            took_s = time.monotonic() - began_s
            accepted[ratio] = sum(one is None for one in outcomes)
            rules = {one.rule_id for one in outcomes if one is not None}
            assert rules == ({"channel_share"} if ratio == "1" else set())
            server.accept("other", 1)
        if ratio == "1":
            assert RATE // 2 <= accepted["1"] <= RATE * (1 + took_s)
    assert accepted["0"] == 200


def test_a_node_that_alone_is_over_its_accounts_limit_is_held_at_once(tmp_path: Path) -> None:
    flags = ("--account-rate", str(RATE), "--channel-rate", "0", "--report-s", "60")
    with PubSubProcess(tmp_path, *flags, "--node-ratio", "1") as server:
        began_s = time.monotonic()
        outcomes = publish_many(server, 300, 2_000)
        took_s = time.monotonic() - began_s
    assert RATE <= sum(one is None for one in outcomes) <= RATE * (1 + took_s)


def test_settings_reach_the_policies() -> None:
    settings = PubSubSettings(
        suppression="coin", estimate="linear", report_s=2.0, node_ratio=1, channel_ratio=1
    )
    node, master = suppress_settings(settings), master_settings(settings)
    assert (node.rejection, node.fuse_ratio, node.interval_us) == ("coin", 1, 2_000_000)
    assert node.early_us == 50_000  # a rate that jumps is reported at once all the same
    assert master.form == "linear"
    assert master.valid_us >= 4 * 2_000_000
