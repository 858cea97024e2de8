"""When a resource ends its work."""

from __future__ import annotations

from collections.abc import Sequence

from sluicegate.lab.world import World, run
from sluicegate.lab.zoo.player import burn
from sluicegate.lab.zoo.resource import ZooResource

MS = 1_000


def ends_ms(
    works_ms: Sequence[int],
    slots: int,
    *,
    cores: float = 0,
    speeds: Sequence[tuple[int, float]] = (),
    late_ms: tuple[int, int] = (0, 0),
) -> list[float]:
    """Return when each piece of work ends, all of them submitted at once."""
    ends: dict[int, float] = {}

    async def main(world: World) -> None:
        resource = ZooResource(world, slots, cores, [(at * MS, speed) for at, speed in speeds])
        for number, work in enumerate(works_ms):

            def ended(number: int = number) -> None:
                ends[number] = world.elapsed_us / MS

            resource.submit(work * MS, ended)
        if late_ms[1]:
            world.call_at_us(late_ms[0] * MS, burn, late_ms[1] * MS)
        await world.until_us(1_000 * MS)

    run(main, 1)
    return [ends[number] for number in range(len(works_ms))]


def test_slots_serve_in_order_of_arrival() -> None:
    assert ends_ms([10, 30, 10, 10], 2) == [10, 30, 20, 30]


def test_no_limit_of_slots_serves_all_at_once() -> None:
    assert ends_ms([10, 30, 20], 0) == [10, 30, 20]


def test_shared_core_divides_its_speed() -> None:
    assert ends_ms([10, 20], 4, cores=1) == [20, 30]


def test_stall_delays_work_in_service_and_queue() -> None:
    assert ends_ms([10, 10], 1, speeds=[(5, 0.0), (105, 1.0)]) == [110, 120]


def test_half_speed_doubles_remaining_time() -> None:
    assert ends_ms([10], 1, speeds=[(4, 0.5), (500, 1.0)]) == [16]


def test_late_loop_notices_late_and_costs_no_capacity() -> None:
    # The second began at 10 ms and ended at 20 ms, while the loop was busy until 55 ms.
    assert ends_ms([10, 10, 40], 1, late_ms=(5, 50)) == [55, 55, 60]
