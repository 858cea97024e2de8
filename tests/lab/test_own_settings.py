"""What a scenario sets otherwise than as shipped is named in its output, with the reason.

What ours is given is seen where policies are made: until time passes for the first time in a run,
every policy notes its settings. What is composed that way in what ships is no scenario's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, Never

import pytest

from sluicegate import policies
from sluicegate.lab.scenario import AnyScenario
from sluicegate.lab.scenarios import TABLE
from sluicegate.lab.virtual_loop import VirtualLoop
from sluicegate.policies.quota import request_units

# Who is who and how many serve, and not how it is judged: the rig says so.
OF_THE_RIG = {"CriticalitySettings.callers", "GateSettings.name", "GateSettings.slots"}

interpreted = pytest.mark.skipif(
    not (request_units.__file__ or "").endswith(".py"),
    reason="what is compiled cannot be replaced; the interpreted build is tried",
)


class _TimePasses(BaseException):
    """All policies are made."""


def _stop(_: VirtualLoop) -> Never:
    raise _TimePasses


def noting(noted: list[object], init: Callable[..., None]) -> Callable[..., None]:
    def noted_init(self: object, *values: object, **named: object) -> None:
        noted.extend(one for one in (*values, *named.values()) if is_dataclass(one))
        init(self, *values, **named)

    return noted_init


@cache
def policy_classes() -> list[type]:
    modules = [
        import_module(one.name) for one in walk_packages(policies.__path__, "sluicegate.policies.")
    ]
    return [
        one
        for module in modules
        for one in vars(module).values()
        if inspect.isclass(one)
        and one.__module__ == module.__name__
        and "settings" in inspect.signature(one).parameters
    ]


def changed(settings: Any) -> Iterator[tuple[str, str]]:
    """The fields that are not at their defaults, and their values."""
    for one in fields(settings):
        default = one.default if one.default_factory is MISSING else one.default_factory()
        value = getattr(settings, one.name)
        if value != default:
            yield f"{type(settings).__name__}.{one.name}", repr(value)


def given(scenario: AnyScenario, candidate: str) -> set[tuple[str, str]]:
    """What the policies of a candidate are given, other than defaults, in all cases."""
    noted: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        for one in policy_classes():
            patch.setattr(one, "__init__", noting(noted, one.__init__))  # type: ignore[misc]
        patch.setattr(VirtualLoop, "_jump", _stop)
        for rig in scenario.rigs.values():
            with suppress(_TimePasses):  # not every run is on the loop
                scenario.candidate(candidate).run(rig, 0)
    return {pair for one in noted for pair in changed(one)}


@cache
def shipped() -> set[tuple[str, str]]:
    """How what ships is composed."""
    overload = TABLE["overload"]
    return given(overload, "protect") | given(overload, "dispatcher")


def own(scenario: AnyScenario) -> set[str]:
    return {name for name, _ in given(scenario, scenario.ours) - shipped()} - OF_THE_RIG


@interpreted
@pytest.mark.parametrize(
    "scenario",
    TABLE.values(),
    ids=lambda scenario: scenario.name,
)
def test_a_setting_of_a_scenario_s_own_is_named_with_its_reason(scenario: AnyScenario) -> None:
    words = " ".join(scenario.own_settings)
    assert [name for name in sorted(own(scenario)) if name.partition(".")[2] not in words] == []
    assert all(setting and reason for setting, reason in scenario.own_settings.items())
