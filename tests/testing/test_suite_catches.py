"""The suite fails every store that breaks a promise, and says what was compared.

The stores are in `broken.py`; a child run of pytest puts them through the suite, as a user would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from tests.testing.broken import BROKEN, BROKEN_ON_REAL_TIME

SUITES = """
from tests.testing.broken import BROKEN, BROKEN_ON_REAL_TIME, OnHand, OnRealTime, Whole

for kind in BROKEN_ON_REAL_TIME:
    name = f"TestReal{kind.__name__}"
    globals()[name] = type(name, (OnRealTime, kind.stories), {"kind": kind})
for kind in (Whole, *BROKEN):
    name = f"Test{kind.__name__}"
    globals()[name] = type(name, (OnHand, kind.stories), {"kind": kind})
"""


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Counter[str]]:
    """How often each class passed and failed."""
    counts_by_class: dict[str, Counter[str]] = {}

    class Listener:
        def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
            # One failure of a class is enough; True says that the test is done with.
            return True if counts_by_class.get(_class(item.nodeid), Counter())["failed"] else None

        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.when == "call":
                counts_by_class.setdefault(_class(report.nodeid), Counter())[report.outcome] += 1

    folder = tmp_path_factory.mktemp("suites")
    (folder / "test_broken.py").write_text(SUITES)
    arguments = [str(folder), "-q", "-c", "/dev/null", "--rootdir", str(folder), "--tb=no"]
    pytest.main([*arguments, "-p", "no:cacheprovider", "-p", "no:valkey"], [Listener()])
    return counts_by_class


def _class(nodeid: str) -> str:
    return nodeid.split("::")[1]


def test_the_store_that_the_broken_ones_are_made_of_passes(
    outcomes: Mapping[str, Counter[str]],
) -> None:
    assert outcomes["TestWhole"]["passed"] > 200
    assert outcomes["TestWhole"]["failed"] == 0


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_store_that_breaks_a_promise_fails(
    outcomes: Mapping[str, Counter[str]], broken: type
) -> None:
    assert outcomes[f"Test{broken.__name__}"]["failed"] > 0, broken.__doc__


@pytest.mark.parametrize("broken", BROKEN_ON_REAL_TIME, ids=lambda broken: broken.__name__)
def test_it_fails_as_well_where_nobody_knows_the_time_beforehand(
    outcomes: Mapping[str, Counter[str]], broken: type
) -> None:
    assert outcomes[f"TestReal{broken.__name__}"]["failed"] > 0, broken.__doc__
