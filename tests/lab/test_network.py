from __future__ import annotations

from collections.abc import Callable

import pytest

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.durations import Constant, Exponential
from sluicegate.lab.network import Network, NetworkLink, NetworkStats
from sluicegate.lab.world import World, run

COUNT = 4_000


def sent_over(link: NetworkLink, *, seed: int = 1) -> tuple[list[tuple[int, int]], NetworkStats]:
    """Number and instant of all that arrived of COUNT messages, one every 100 us."""

    async def main(world: World) -> tuple[list[tuple[int, int]], NetworkStats]:
        network = Network(world, link)
        arrived: list[tuple[int, int]] = []

        def deliver(source: str, message: object) -> None:
            assert source == "a"
            assert isinstance(message, int)
            arrived.append((message, world.elapsed_us))

        network.join("b", deliver)
        for number in range(COUNT):
            network.send("a", "b", number)
            await world.sleep_us(100)
        await world.sleep_us(10_000_000)
        return arrived, network.stats

    return run(main, seed).value


def test_a_link_delivers_all_in_order_after_its_delay() -> None:
    arrived, stats = sent_over(NetworkLink(delay=Constant(700)))
    assert arrived == [(number, number * 100 + 700) for number in range(COUNT)]
    assert stats == NetworkStats(COUNT, COUNT, 0, 0, 0, 0)


def test_a_delay_that_scatters_keeps_the_order_and_never_delivers_at_once() -> None:
    arrived, _ = sent_over(NetworkLink(delay=Exponential(1_000.0)))
    assert [number for number, _ in arrived] == list(range(COUNT))
    assert all(at_us > number * 100 for number, at_us in arrived)


def test_a_link_without_a_delay_still_takes_a_microsecond() -> None:
    arrived, _ = sent_over(NetworkLink(delay=Constant(0)))
    assert arrived[0] == (0, 1)


def test_losses_and_doubles_are_as_many_as_the_link_says() -> None:
    arrived, stats = sent_over(NetworkLink(loss=0.1, duplicate=0.05))
    assert stats.lost == pytest.approx(0.1 * COUNT, rel=0.15)
    assert stats.duplicated == pytest.approx(0.9 * 0.05 * COUNT, rel=0.25)
    assert len(arrived) == stats.delivered == COUNT - stats.lost + stats.duplicated


def test_what_is_reordered_passes_others() -> None:
    arrived, stats = sent_over(NetworkLink(delay=Exponential(2_000.0), reorder=0.2))
    numbers = [number for number, _ in arrived]
    assert sorted(numbers) == list(range(COUNT))
    assert numbers != sorted(numbers)
    assert stats.reordered == pytest.approx(0.2 * COUNT, rel=0.15)


def test_the_same_seed_has_the_same_accidents() -> None:
    link = NetworkLink(delay=Exponential(500.0), loss=0.1, reorder=0.1, duplicate=0.1)
    assert sent_over(link) == sent_over(link)
    assert sent_over(link) != sent_over(link, seed=2)


def value_of(main: Callable[[World, Network, list[object]], object]) -> list[object]:
    async def whole(world: World) -> list[object]:
        network = Network(world, NetworkLink(delay=Constant(100)))
        messages: list[object] = []
        for place in ("a", "b", "c"):
            network.join(place, lambda source, message, to=place: messages.append((to, message)))  # type: ignore[misc]
        main(world, network, messages)
        await world.sleep_us(1_000_000)
        return messages

    return run(whole, 0).value


def test_a_partition_cuts_between_its_sides_until_it_heals() -> None:
    def main(world: World, network: Network, messages: list[object]) -> None:
        network.partition({"a", "b"}, {"c"})
        assert network.apart("a", "c")
        assert not network.apart("a", "b")
        network.send("a", "b", 1)
        network.send("a", "c", 2)
        world.call_at_us(500, network.heal)
        world.call_at_us(501, network.send, "a", "c", 3)

    assert value_of(main) == [("b", 1), ("c", 3)]


def test_a_partition_loses_what_is_under_way() -> None:
    def main(world: World, network: Network, messages: list[object]) -> None:
        network.send("a", "b", 1)
        world.call_at_us(50, network.cut, "a", "b")
        network.send("b", "a", 2)

    assert value_of(main) == [("a", 2)]


def test_a_place_that_left_hears_nothing_and_may_come_back() -> None:
    def main(world: World, network: Network, messages: list[object]) -> None:
        network.leave("b")
        network.send("a", "b", 1)
        world.call_at_us(500, network.join, "b", lambda source, message: messages.append(message))
        world.call_at_us(501, network.send, "a", "b", 2)

    assert value_of(main) == [2]


def test_links_that_make_no_sense_are_refused() -> None:
    with pytest.raises(BadValue, match=r"link\.loss"):
        NetworkLink(loss=1.5)

    async def main(world: World) -> None:
        network = Network(world)
        network.join("a", lambda _, __: None)
        with pytest.raises(BadValue, match="place"):
            network.join("a", lambda _, __: None)

    run(main, 0)


def test_a_link_of_its_own_is_for_one_direction_only() -> None:
    async def main(world: World) -> list[tuple[str, int]]:
        links = {("a", "b"): NetworkLink(delay=Constant(5_000))}
        network = Network(world, NetworkLink(delay=Constant(100)), links=links)
        arrivals: list[tuple[str, int]] = []
        for place in ("a", "b"):
            network.join(place, lambda source, _: arrivals.append((source, world.elapsed_us)))
        network.send("a", "b", None)
        network.send("b", "a", None)
        await world.sleep_us(10_000)
        return arrivals

    assert run(main, 0).value == [("b", 100), ("a", 5_000)]
