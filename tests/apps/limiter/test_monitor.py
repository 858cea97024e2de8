from __future__ import annotations

import logging

import pytest

from sluicegate import Criticality, Decision
from sluicegate.apps.limiter import monitor as module
from sluicegate.apps.limiter.monitor import LOG_EVERY_US, LOOK_US, Monitor
from sluicegate.apps.limiter.store_watch import DOWN, SLOW, LimiterStoreWatch
from sluicegate.policies.admission.utilization_gate import SIGNALS, UtilizationGate
from sluicegate.policies.client.path_timeout import PathTimeout
from sluicegate.service.background import LAG_TICK_US
from sluicegate.system import Load, PressureStall, ThreadTimes
from sluicegate.telemetry.service_metrics import ServiceMetrics
from sluicegate.testing import SeededChance

ADMITTED = Decision(True, 1, 0, 0, None, "login")


class World:
    """A monitor over a machine whose times are set by hand."""

    def __init__(
        self, patch: pytest.MonkeyPatch, *, machine: bool = False, pressure: bool = False
    ) -> None:
        self.now_us = self.ran_us = self.waited_us = self.throttled_us = 0
        self.load = Load(0.0, None)
        patch.setattr(module, "thread_times", lambda: ThreadTimes(self.ran_us, self.waited_us))
        patch.setattr(module, "now_us", lambda: self.now_us)
        patch.setattr(module, "Throttling", lambda: self)
        patch.setattr(module, "LoadMeter", lambda: self)
        patch.setattr(module, "read_pressure", lambda: self.load.pressure)
        self.gate = UtilizationGate(SeededChance(1))
        self.metrics = ServiceMetrics()
        self.path = PathTimeout()
        self.store = LimiterStoreWatch(paths=lambda: [self.path], clock=lambda: self.now_us)
        self.monitor = Monitor(
            self.gate, self.metrics, self.store, machine=machine, pressure=pressure
        )

    def look(self) -> Load:
        return self.load

    def held_us(self) -> int:
        return self.throttled_us

    def pass_looks(
        self,
        looks: int = 8,
        *,
        ran: float = 0.0,
        waited: float = 0.0,
        throttled: float = 0.0,
        late_us: int = 0,
        decisions: int = 0,
        took_us: int = 0,
    ) -> None:
        for _ in range(looks * LOOK_US // (LAG_TICK_US + late_us)):
            passed_us = LAG_TICK_US + late_us
            self.now_us += passed_us
            self.ran_us += int(ran * passed_us)
            self.waited_us += int(waited * passed_us)
            self.throttled_us += int(throttled * passed_us)
            for _ in range(decisions):
                self.metrics.record_decision("login", Criticality.BULK, ADMITTED, took_us)
            self.monitor.tick(late_us)

    @property
    def shed(self) -> str:
        """What it sheds for; empty where it sheds nobody."""
        return self.gate.worst if self.gate.shedding else ""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_an_idle_loop_beside_busy_neighbours_sheds_nobody(world: World) -> None:
    world.load = Load(1.0, PressureStall(1.0, 1.0, 1.0))
    # Its timer comes 25 ms late, since it waits so long for a core whenever it is to run.
    world.pass_looks(40, ran=0.02, waited=0.4, late_us=25_000)
    assert world.shed == ""
    assert max(world.gate.stats().signals.values()) < 0.1


def test_a_loop_that_computes_all_the_time_is_full(world: World) -> None:
    world.pass_looks(ran=0.95)
    assert world.shed == "cpu"


def test_a_loop_that_never_rests_is_full_however_little_of_a_core_it_gets(world: World) -> None:
    world.pass_looks(ran=0.05, waited=0.94)
    assert world.shed == "cpu"


def test_a_loop_that_waits_for_a_core_and_then_rests_is_not(world: World) -> None:
    # One caller after the other beside busy neighbours: who is not computing waits for the core.
    world.pass_looks(ran=0.1, waited=0.6)
    assert world.shed == ""


def test_a_loop_that_is_late_by_its_own_doing_is_full(world: World) -> None:
    world.pass_looks(ran=0.3, late_us=50_000)
    assert world.shed == "lag"


def test_a_loop_that_its_cgroup_holds_back_is_full(world: World) -> None:
    world.pass_looks(ran=0.2, throttled=0.25)
    assert world.shed == "throttled"


def test_answers_that_queue_for_the_store_fill_it(world: World) -> None:
    world.path.timeout_us = 0
    world.pass_looks(decisions=10, took_us=20_000)
    assert world.shed == "queue"


def test_answers_within_half_of_timeout_of_far_store_are_no_queue(world: World) -> None:
    world.path.timeout_us = 150_000
    world.pass_looks(40, decisions=100, took_us=75_000)
    assert world.shed == ""
    world.pass_looks(decisions=100, took_us=150_000)
    assert world.shed == "queue"


@pytest.mark.parametrize("health", [SLOW, DOWN])
def test_answers_of_store_in_trouble_are_no_queue(world: World, health: str) -> None:
    world.store.health = health
    world.pass_looks(40, decisions=100, took_us=150_000)
    assert world.shed == ""


def test_a_slow_answer_at_a_time_is_no_queue(world: World) -> None:
    world.pass_looks(decisions=1, took_us=40_000)
    assert world.shed == ""


def test_one_bad_look_is_no_overload(world: World) -> None:
    world.pass_looks(1, ran=1.0, waited=1.0, throttled=1.0, decisions=50, took_us=150_000)
    assert world.shed == ""


def test_it_stops_when_the_load_is_gone(world: World) -> None:
    world.pass_looks(ran=1.0)
    assert world.shed == "cpu"
    world.pass_looks(ran=0.1)
    assert world.shed == ""


@pytest.mark.parametrize("machine", [False, True])
@pytest.mark.parametrize("pressure", [False, True])
def test_the_machine_and_its_pressure_count_each_where_it_is_asked_to(
    monkeypatch: pytest.MonkeyPatch, machine: bool, pressure: bool
) -> None:
    world = World(monkeypatch, machine=machine, pressure=pressure)
    for load, signal, counts in (
        (Load(1.0, PressureStall(1.0, 0.0, 0.0)), "machine_cpu", machine),
        (Load(0.1, PressureStall(0.0, 0.9, 0.0)), "machine_io", pressure),
        (Load(0.1, PressureStall(0.0, 0.0, 0.9)), "machine_memory", pressure),
    ):
        world.load = load
        world.pass_looks(12, ran=0.01)
        assert world.shed == (signal if counts else "")


def test_a_shed_is_logged_once_with_its_signal_and_the_switch(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sluicegate.limiter")
    for _ in range(3):  # it comes and goes
        world.pass_looks(ran=1.0)
        world.pass_looks(ran=0.1)
    (line,) = caplog.messages
    assert SIGNALS["cpu"] in line
    assert "(cpu, " in line
    assert "--shed off" in line
    world.pass_looks(2 * LOG_EVERY_US // LOOK_US, ran=0.1)
    world.pass_looks(ran=1.0)
    assert len(caplog.messages) == 2
