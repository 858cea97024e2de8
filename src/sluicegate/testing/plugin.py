"""Plugin: Sluicegate's fixtures for pytest.

    pytest_plugins = ["sluicegate.testing.plugin"]

in the top `conftest.py`. A fixture hands out what `sluicegate.testing` has and closes it
afterwards; nothing else may be done here. What is imported when pytest starts is kept light.

    def test_the_sixth_login_is_refused(sluicegate_limiter, sluicegate_clock):
        limiter = sluicegate_limiter("5/minute")

A test that is about something else switches the limits off, whatever they are:

    @pytest.mark.sluicegate_limits("admit")

and one about refusals has them all: `@pytest.mark.sluicegate_limits("refuse")`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from sluicegate.limits.limiter import Limiter
    from sluicegate.limits.rule import RuleLike
    from sluicegate.testing.clock import HandClock
    from sluicegate.testing.faults import Faults

MARKER = "sluicegate_limits"
ANSWERS = ("count", "admit", "refuse")


def pytest_configure(config: pytest.Config) -> None:
    """Tell of the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(answer): what limiters of the fixture sluicegate_limiter do in this test: "
        '"count", "admit" or "refuse"',
    )


@pytest.fixture
def sluicegate_clock() -> HandClock:
    """A clock that stands still until the test moves it."""
    from sluicegate.testing.clock import HandClock  # noqa: PLC0415

    return HandClock()


@pytest.fixture
def sluicegate_faults(sluicegate_clock: HandClock) -> Faults:
    """Faults for stores on that clock: `sluicegate_limiter("5/s", faults=sluicegate_faults)`."""
    from sluicegate.testing.faults import Faults  # noqa: PLC0415

    return Faults(sluicegate_clock)


@pytest.fixture
def sluicegate_limiter(
    request: pytest.FixtureRequest, sluicegate_clock: HandClock
) -> Iterator[Callable[..., Limiter]]:
    """Makes limiters on that clock, as `Limiter(...)` would; they are closed after the test."""
    from sluicegate.testing.limiter import admit_all, hand_limiter, refuse_all  # noqa: PLC0415

    answer = _answer_of(request)
    limiters: list[Limiter] = []

    def make(rule: RuleLike | None = None, **settings: Any) -> Limiter:
        settings.setdefault("clock", sluicegate_clock)
        if answer == "count":
            limiter = hand_limiter(rule, **settings)[0]
        else:
            # Whatever it would count with, it shall not.
            for away in ("faults", "open_store", "store_url"):
                settings.pop(away, None)
            limiter = (admit_all if answer == "admit" else refuse_all)(rule, **settings)
        limiters.append(limiter)
        return limiter

    yield make
    for limiter in reversed(limiters):
        limiter.close()


def _answer_of(request: pytest.FixtureRequest) -> str:
    marker = request.node.get_closest_marker(MARKER)
    if marker is None:
        return "count"
    if len(marker.args) != 1 or marker.kwargs or marker.args[0] not in ANSWERS:
        raise pytest.UsageError(
            f"@pytest.mark.{MARKER} says one of {', '.join(ANSWERS)}, not {marker.args!r}"
        )
    answer: str = marker.args[0]
    return answer
