from __future__ import annotations

import pytest

from sluicegate.kernels.concurrency_limit import LIMIT_MAX
from sluicegate.kernels.vegas import Vegas
from tests.kernels.adaptive_numbers import updated

MS = 1_000


def test_vegas_grows_fast_without_a_queue_slowly_with_a_small_one_and_falls_with_a_large() -> None:
    for rtt_us, limit in (
        (100 * MS, 56),  # no queue: 6 decades up
        (102 * MS, 56),  # 50 * 2/102 = 0.98: still no more than one waits
        (103 * MS, 51),  # 1.46, so 2 wait
        (105 * MS, 50),  # 2.4, so 3 wait: no longer fewer than 3
        (113 * MS, 50),  # 5.8, so 6 wait: not more than 6
        (114 * MS, 49),  # 6.1, so 7 wait
    ):
        vegas = Vegas(initial=50, probe_multiplier=1_000)
        updated(vegas, 100 * MS)
        assert updated(vegas, rtt_us) == limit


def test_vegas_takes_steps_of_a_decade_of_its_limit() -> None:
    for initial, after in ((9, 15), (99, 105), (100, 112), (1_000, 1_018)):
        vegas = Vegas(initial=initial, limit_max=LIMIT_MAX, probe_multiplier=1_000)
        updated(vegas, MS)
        assert updated(vegas, MS) == after


def test_vegas_believes_a_smaller_latency_by_a_quarter_and_originally_at_once() -> None:
    for drain, unloaded_us in ((True, 97_500), (False, 90_000)):
        vegas = Vegas(initial=50, probe_multiplier=1_000, drain=drain)
        updated(vegas, 100 * MS)
        assert updated(vegas, 90 * MS) == 50
        assert vegas.unloaded_us == unloaded_us


def test_vegas_probes_by_halving_its_limit_and_believes_only_the_second_update() -> None:
    vegas = Vegas(initial=10, probe_multiplier=1)
    assert updated(vegas, 100 * MS) == 10
    assert updated(vegas, 150 * MS, times=8) == 10  # 3.3 wait: as it should be
    assert vegas.update(150 * MS, 10, False, 0.0) == 5
    assert vegas.update(150 * MS, 10, False, 0.0) == 5  # still what was queued before
    assert vegas.update(120 * MS, 5, False, 0.0) == 10
    assert vegas.unloaded_us == 120 * MS
    # A draw of 0 brings the next one after half as many updates.
    limits = [vegas.update(180 * MS, 10, False, 0.5) for _ in range(5)]
    assert limits == [10, 10, 10, 10, 5]


def test_vegas_needs_no_drain_when_fewer_than_half_are_at_work() -> None:
    vegas = Vegas(initial=10, probe_multiplier=1)
    updated(vegas, 100 * MS)
    limits = [vegas.update(300 * MS, 4, False, 0.5) for _ in range(9)]
    assert limits == [10] * 9
    assert vegas.unloaded_us == 300 * MS


def test_vegas_in_its_original_form_believes_the_latency_it_has() -> None:
    vegas = Vegas(initial=10, probe_multiplier=1, drain=False)
    updated(vegas, 100 * MS)
    limits = [vegas.update(150 * MS, 10, False, 0.5) for _ in range(9)]
    assert limits == [10] * 9
    assert vegas.unloaded_us == 150 * MS


def test_a_drop_reduces_vegas_and_calls_off_its_probe() -> None:
    vegas = Vegas(initial=200, probe_multiplier=1_000)
    assert vegas.update(0, 0, True, 0.5) == 198
    vegas = Vegas(initial=10, probe_multiplier=1)
    updated(vegas, 100 * MS)
    updated(vegas, 150 * MS, times=9)
    assert vegas.limit == 5
    assert vegas.update(900 * MS, 5, True, 0.5) == 9
    updated(vegas, 130 * MS)
    assert vegas.unloaded_us == 100 * MS


@pytest.mark.parametrize("probe_multiplier", [0, LIMIT_MAX + 1])
def test_vegas_refuses_a_multiplier_outside_its_range(probe_multiplier: int) -> None:
    with pytest.raises(ValueError, match="probe_multiplier must be from 1"):
        Vegas(probe_multiplier=probe_multiplier)
