from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sluicegate.contracts.criticality import Criticality
from sluicegate.rules.resources.callers import CallerRules
from sluicegate.rules.resources.priorities import Priorities, PriorityNames

CRITICAL, DEGRADED, BEST_EFFORT, BULK = Criticality
TABLE = {"Play*": DEGRADED, "PlaybackStart": CRITICAL, "*Prefetch": BULK, "*": BEST_EFFORT}
OURS = Priorities(PriorityNames(TABLE), CallerRules({"gateway": CRITICAL, "batch": BULK}))


def named(name: str, header: str = "x-netflix.request-name") -> Criticality:
    return OURS.settle("gateway", None, {header: name})


def test_without_a_claim_the_requests_name_says_it() -> None:
    assert named("PlaybackStart") is CRITICAL
    assert named("PlayPause") is DEGRADED
    assert named("PlayPrefetch") is DEGRADED  # of several globs the first
    assert named("RowPrefetch") is BULK
    assert named("Anything") is BEST_EFFORT


def test_without_claim_or_name_it_is_the_default() -> None:
    assert OURS.settle("gateway", None, {}) is DEGRADED
    assert named("PlaybackStart", "x-other") is DEGRADED
    bulk = Priorities(PriorityNames({"a": CRITICAL}, default=BULK))
    assert bulk.settle("x", None, {"x-netflix.request-name": "b"}) is BULK
    assert bulk.settle("x", None, {}) is BULK


def test_a_name_nobody_would_write_is_no_name() -> None:
    assert named("Play" * 64) is DEGRADED
    assert Priorities(PriorityNames({"a*": BULK})).names.find("a" * 256) is BULK
    assert Priorities(PriorityNames({"a*": BULK})).names.find("a" * 257) is DEGRADED


def test_a_claim_is_believed_up_to_what_the_caller_may_claim() -> None:
    headers = {"x-netflix.request-name": "RowPrefetch"}
    assert OURS.settle("gateway", CRITICAL, headers) is CRITICAL
    assert OURS.settle("gateway", BULK, headers) is BULK
    assert OURS.settle("batch", CRITICAL, headers) is BULK
    assert OURS.settle("stranger", CRITICAL, headers) is DEGRADED
    assert OURS.settle("stranger", BEST_EFFORT, headers) is BEST_EFFORT
    strict = Priorities(callers=CallerRules(strangers=BULK))
    assert strict.settle("stranger", DEGRADED, {}) is BULK


_TEXTS = st.text("ab*", min_size=1, max_size=5)


@given(st.dictionaries(_TEXTS, st.sampled_from(Criticality), max_size=5), st.text("ab", max_size=7))
def test_entry_of_name_has_its_class_and_stays(names: dict[str, Criticality], name: str) -> None:
    table = PriorityNames(names)
    entry = table.entry(name)
    assert entry in names or entry == name
    assert table.find(entry) == table.find(name)
    assert table.entry(entry) == entry
