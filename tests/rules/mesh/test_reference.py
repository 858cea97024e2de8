"""Envoy's semantics, held against a slow reference: whole sequences over random trees."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluicegate import Limiter
from sluicegate.contracts.checks import COST_UNSET, Descriptor, MeshRequest, MeshResponse, Override
from sluicegate.rules.mesh.parser import parse_domain
from sluicegate.rules.mesh.rule_set import MeshRuleSet
from sluicegate.rules.mesh.service import Mesh
from sluicegate.rules.mesh.settings import MeshSettings
from sluicegate.rules.problems import Problems
from sluicegate.rules.shared_limits import SharedLimits
from sluicegate.testing import HandClock
from tests.rules.mesh.reference import SECONDS, Reference, ReferenceDescriptor, Status
from tests.rules.mesh.world import ENVOY, Noted, OpenGate

KEYS = st.sampled_from(["a", "b", "a_b"])
WRITTEN = st.sampled_from(["", "x", "y", "b_c", "x*", "*y", "*", "x*y", "**", "c"])
REAL = st.sampled_from(["x", "y", "b_c", "xy", "xzy", "c", "", "z|\\", "*"])
NAMES = st.sampled_from(["one", "two", "three"])


@st.composite
def limits(draw: st.DrawFn, units: tuple[str, ...]) -> dict[str, Any]:
    """A `rate_limit`."""
    limit: dict[str, Any] = {}
    if draw(st.integers(0, 9)) == 0:
        limit["unlimited"] = True
    else:
        limit["unit"] = draw(st.sampled_from(units))
        limit["requests_per_unit"] = draw(st.integers(0, 7))
    name = draw(st.none() | NAMES)
    if name is not None:
        limit["name"] = name
    if draw(st.integers(0, 5)) == 0:
        other = draw(NAMES)
        if other != name:
            limit["replaces"] = [{"name": other}]
    return limit


@st.composite
def trees(draw: st.DrawFn, units: tuple[str, ...], depth: int = 3) -> list[dict[str, Any]]:
    """Descriptors beside each other, some with more below."""
    nodes: list[dict[str, Any]] = []
    seen: set[tuple[str, str]] = set()
    for key, value in draw(st.lists(st.tuples(KEYS, WRITTEN), min_size=1, max_size=4)):
        if (key, value) in seen:
            continue
        seen.add((key, value))
        node: dict[str, Any] = {"key": key}
        if value:
            node["value"] = value
        if draw(st.integers(0, 3)):
            node["rate_limit"] = draw(limits(units))
        for flag in ("shadow_mode", "quota_mode", "detailed_metric", "value_to_metric"):
            if draw(st.integers(0, 5)) == 0:
                node[flag] = True
        if "*" in value and draw(st.booleans()):
            node["share_threshold"] = True
        if depth > 1 and draw(st.booleans()):
            node["descriptors"] = draw(trees(units, depth - 1))
        nodes.append(node)
    return nodes


@st.composite
def asks(draw: st.DrawFn) -> ReferenceDescriptor:
    """A descriptor of a request."""
    entries = draw(st.lists(st.tuples(KEYS, REAL), min_size=1, max_size=3))
    hits = draw(st.none() | st.integers(0, 4))
    override = None
    if draw(st.integers(0, 9)) == 0:
        override = (draw(st.integers(0, 4)), draw(st.integers(1, 7)))
    return ReferenceDescriptor(tuple(entries), hits, override)


STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 20, 60, 3_600, 86_400, 40 * 86_400]),
        st.lists(asks(), min_size=1, max_size=3),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=12,
)


def compiled(tree: list[dict[str, Any]], limiter: Limiter) -> MeshRuleSet:
    """The book of a tree, with its shared_limits in the limiter."""
    problems, shared_limits = Problems("tree", {}), SharedLimits()
    domain = parse_domain({"domain": "d.e", "descriptors": tree}, problems, shared_limits, ENVOY)
    problems.raise_if_any()
    assert domain is not None
    limiter.replace_rules(shared_limits.rules)
    return MeshRuleSet([domain])


def state_of(descriptors: list[ReferenceDescriptor], hits: int) -> MeshRequest:
    """The same as it comes from a door."""
    return MeshRequest(
        "d.e",
        [
            Descriptor(
                descriptor.entries,
                cost=COST_UNSET if descriptor.hits is None else descriptor.hits,
                override=None if descriptor.override is None else Override(*descriptor.override),
            )
            for descriptor in descriptors
        ],
        hits,
    )


def as_reference(answer: MeshResponse, *, resets: bool = True) -> tuple[bool, list[Status]]:
    """An answer in the reference's words."""
    statuses = []
    for status in answer.statuses:
        limit = status.limit
        statuses.append(
            Status(
                status.over,
                None if limit is None else (limit.requests_per_unit, limit.unit, limit.name),
                status.remaining,
                -1 if limit is None or not resets else status.reset_us // 1_000_000,
            )
        )
    return answer.over, statuses


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trees(tuple(SECONDS)), STEPS, st.booleans(), st.booleans())
def test_every_answer_is_that_of_the_reference(
    tree: list[dict[str, Any]], steps: Any, stop: bool, cache: bool
) -> None:
    clock = HandClock()
    limiter = Limiter(clock=clock)
    mesh = Mesh(
        limiter,
        OpenGate(),
        Noted(),
        settings=MeshSettings(
            semantics=ENVOY, stop_when_over=stop, local_cache_max=1_000 if cache else 0
        ),
        book=compiled(tree, limiter),
    )
    reference = Reference("d.e", tree, stop=stop, cache=cache)
    for advance_s, descriptors, hits in steps:
        clock.advance(s=advance_s, us=1)
        now_us = clock.now_us()
        answer = mesh.should_rate_limit(state_of(descriptors, hits), now_us)
        assert isinstance(answer, MeshResponse)
        assert as_reference(answer) == reference.ask(descriptors, hits, now_us // 1_000_000)
    if not stop:
        names = [name for name in mesh.stats()[0]._fields if name != "key"] if mesh.stats() else []
        got = {
            one.key: {name: getattr(one, name) for name in names if getattr(one, name)}
            for one in mesh.stats()
        }
        want = {
            key: {name: count for name, count in stats.items() if count}
            for key, stats in reference.stats.items()
        }
        assert got == want
