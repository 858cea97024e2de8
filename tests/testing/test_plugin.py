"""The plugin, in child runs of pytest, as a user would have it."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def user(pytester: pytest.Pytester) -> pytest.Pytester:
    """A user's folder of tests, strict about markers and warnings."""
    pytester.makeconftest('pytest_plugins = ["sluicegate.testing.plugin"]')
    pytester.makeini(
        "[pytest]\naddopts = --strict-markers -p no:valkey -p no:cacheprovider\n"
        "filterwarnings = error\n"
    )
    return pytester


def test_the_fixtures_give_a_clock_and_limiters_on_it(user: pytest.Pytester) -> None:
    user.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("run", range(2))
        def test_a_limit(sluicegate_limiter, sluicegate_clock, run):
            limiter = sluicegate_limiter("5/minute", rules={"login": "1/hour"})
            other = sluicegate_limiter("1/minute")
            assert all(limiter.take("ann") for _ in range(5))
            assert not limiter.take("ann")
            assert limiter.take("ann", rule="login")
            assert other.take("ann") and not other.take("ann")
            sluicegate_clock.advance(s=60)
            assert limiter.take("ann") and other.take("ann")

        def test_a_clock_of_ones_own(sluicegate_limiter):
            from sluicegate.testing import HandClock
            clock = HandClock()
            limiter = sluicegate_limiter("1/s", clock=clock)
            assert limiter.take("ann") and not limiter.take("ann")
            clock.advance(s=1)
            assert limiter.take("ann")
        """
    )
    user.runpytest().assert_outcomes(passed=3)


def test_the_faults_are_those_of_the_limiters_that_were_given_them(user: pytest.Pytester) -> None:
    user.makepyfile(
        """
        from sluicegate.testing import START_US

        def test_a_failure(sluicegate_limiter, sluicegate_faults, sluicegate_clock):
            limiter = sluicegate_limiter("1/day", failure="closed", faults=sluicegate_faults)
            sluicegate_faults.fail(1, after_us=5)
            decision = limiter.take("ann")
            assert not decision and decision.degraded
            assert sluicegate_clock.now_us() == START_US + 5
            assert limiter.take("ann") and not limiter.take("ann")
        """
    )
    user.runpytest().assert_outcomes(passed=1)


def test_a_marker_switches_the_limits_off_or_has_all_refused(user: pytest.Pytester) -> None:
    user.makepyfile(
        """
        import pytest
        from sluicegate.testing import Faults

        @pytest.fixture
        def limiter(sluicegate_limiter, sluicegate_faults):
            sluicegate_faults.fail()
            return sluicegate_limiter("1/day", rules={"login": "1/day"}, faults=sluicegate_faults)

        @pytest.mark.sluicegate_limits("admit")
        def test_something_else(limiter):
            assert all(limiter.take("ann", rule="login") for _ in range(9))
            assert not limiter.take("ann").degraded

        @pytest.mark.sluicegate_limits("refuse")
        class TestRefusals:
            def test_what_is_refused(self, limiter):
                assert not limiter.take("ann")
                assert not limiter.take("ann", rule="login")

            @pytest.mark.sluicegate_limits("count")
            def test_the_nearest_holds(self, sluicegate_limiter):
                limiter = sluicegate_limiter("1/day")
                assert limiter.take("ann") and not limiter.take("ann")

        def test_nothing_said_is_count(sluicegate_limiter):
            assert sluicegate_limiter("1/day").take("ann")
        """
    )
    user.runpytest().assert_outcomes(passed=4)


def test_a_marker_that_says_nothing_known_is_told(user: pytest.Pytester) -> None:
    user.makepyfile(
        """
        import pytest

        marker = pytest.mark.sluicegate_limits
        said = [marker(), marker("often"), marker("admit", "refuse"), marker(answer="admit")]

        @pytest.mark.parametrize("run", [pytest.param(0, marks=one) for one in said])
        def test_it(sluicegate_limiter, run):
            pass
        """
    )
    result = user.runpytest()
    result.assert_outcomes(errors=4)
    result.stdout.fnmatch_lines(["*sluicegate_limits says one of count, admit, refuse*"] * 4)


def test_limiters_are_closed_after_the_test(user: pytest.Pytester) -> None:
    user.makepyfile(
        """
        import threading
        import pytest
        from sluicegate import Unavailable

        kept, before = [], threading.enumerate()

        def test_first(sluicegate_limiter, sluicegate_faults):
            kept.append(sluicegate_limiter("1/day", failure="closed", faults=sluicegate_faults))
            assert kept[0].take("ann")

        def test_second():
            assert kept[0].take("ben").degraded
            assert not [one for one in threading.enumerate() if one not in before]
        """
    )
    user.runpytest().assert_outcomes(passed=2)


def test_what_pytest_imports_at_its_start_is_light(user: pytest.Pytester) -> None:
    user.makepyfile(
        """
        import sys

        def test_nothing_is_imported_that_was_not_asked_for():
            suites = ("sluicegate.testing.stores", "sluicegate.limits.stores")
            for heavy in ("redis", "hiredis", *suites):
                assert heavy not in sys.modules
        """
    )
    user.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_failed_story_of_the_suite_says_what_was_compared(user: pytest.Pytester) -> None:
    user.makeconftest("")  # the suite needs no plugin
    user.makepyfile(
        """
        from sluicegate.stores.memory.store import MemoryStore
        from sluicegate.testing import HandClock
        from sluicegate.testing.stores import StoreSuite

        class Generous(MemoryStore.__mro__[-1]):
            def __init__(self, clock):
                self.inner = MemoryStore(clock.now_us)

            async def take(self, charges, *, keep=True, count_refused=False):
                charges = [one._replace(cost=one.cost // 2) for one in charges]
                return await self.inner.take(charges, keep=keep, count_refused=count_refused)

            async def close(self):
                await self.inner.close()

        class TestGenerous(StoreSuite):
            def open_store(self):
                self.clock = HandClock()
                return Generous(self.clock)

            async def pass_time(self, us):
                self.clock.advance(us=us)

        class TestNothingSaid(StoreSuite):
            pass
        """
    )
    result = user.runpytest_subprocess("-k", "cost_of_nothing and gcra", "-vv")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["*assert *'remaining': 3*", "*NotImplementedError: say how your store is opened*"]
    )
