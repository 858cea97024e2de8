"""Plugin: Headgate's fixtures for pytest.

    pytest_plugins = ["headgate.testing.plugin"]

in the top `conftest.py`. A fixture hands out what `headgate.testing` has and closes it afterwards;
nothing else may be done here. What is imported when pytest starts is kept light.

    def test_the_sixth_login_is_refused(headgate_limiter, headgate_clock):
        limiter = headgate_limiter("5/minute")

A test that is about something else switches the limits off, whatever they are:

    @pytest.mark.headgate_limits("admit")

and one about refusals has them all: `@pytest.mark.headgate_limits("refuse")`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from headgate.limits.limiter import Limiter
    from headgate.limits.rule import RuleLike
    from headgate.testing.clock import HandClock
    from headgate.testing.faults import Faults

MARKER = "headgate_limits"
ANSWERS = ("count", "admit", "refuse")


def pytest_configure(config: pytest.Config) -> None:
    """Tell of the marker."""
    config.addinivalue_line(
        "markers",
        f'{MARKER}(answer): what limiters of the fixture headgate_limiter do in this test: "count",'
        ' "admit" or "refuse"',
    )


@pytest.fixture
def headgate_clock() -> HandClock:
    """A clock that stands still until the test moves it."""
    from headgate.testing.clock import HandClock  # noqa: PLC0415

    return HandClock()


@pytest.fixture
def headgate_faults(headgate_clock: HandClock) -> Faults:
    """Faults for stores on that clock: `headgate_limiter("5/minute", faults=headgate_faults)`."""
    from headgate.testing.faults import Faults  # noqa: PLC0415

    return Faults(headgate_clock)


@pytest.fixture
def headgate_limiter(
    request: pytest.FixtureRequest, headgate_clock: HandClock
) -> Iterator[Callable[..., Limiter]]:
    """Makes limiters on that clock, as `Limiter(...)` would; they are closed after the test."""
    from headgate.testing.limiter import admit_all, hand_limiter, refuse_all  # noqa: PLC0415

    answer = _answer_of(request)
    made: list[Limiter] = []

    def make(rule: RuleLike | None = None, **settings: Any) -> Limiter:
        settings.setdefault("clock", headgate_clock)
        if answer == "count":
            limiter = hand_limiter(rule, **settings)[0]
        else:
            # Whatever it would count with, it shall not.
            for away in ("faults", "open_store", "store_url"):
                settings.pop(away, None)
            limiter = (admit_all if answer == "admit" else refuse_all)(rule, **settings)
        made.append(limiter)
        return limiter

    yield make
    for limiter in reversed(made):
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
