"""Group settings: a tree of quotas as a file gives it, checked as a whole.

    quota_ru: 10000                      of all; without it, what the groups add up to
    default_group: others                of callers who are not named
    groups:
      guests:   {quota_ru: 6000}
      hosts:    {quota_ru: 3000, ceiling_ru: 5000, weight: 2}
      payouts:  {quota_ru: 1000, parent: hosts}
      others:   {quota_ru: 500}
    callers: {search: guests, calendar: hosts, ledger: payouts}

What is wrong is named by its path. A quota is an epoch's, and a guarantee: those of a group's
children may not be more than its own. Bounds: `GROUPS_MAX`, `DEPTH_MAX`, `NAMED_MAX`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.bounds import ranged
from sluicegate.policies.settings import check_ranges, within

GROUPS_MAX: Final = 1_000
DEPTH_MAX: Final = 8
NAMED_MAX: Final = 100_000
CALLERS_MAX: Final = 1 << 24
RU_MAX: Final = 1 << 40
WEIGHT_MAX: Final = 1_000
DEFAULT_GROUP: Final = "default"
FIELDS: Final = ("quota_ru", "ceiling_ru", "weight", "parent")
WHOLE_FIELDS: Final = ("quota_ru", "groups", "callers", "default_group")
NO_CALLERS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceGroup:
    """One group; without a ceiling it may borrow all that its parent has."""

    quota_ru: int = 0
    ceiling_ru: int | None = None
    weight: int = 1
    parent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceGroupsSettings:
    """The tree, and how it is kept."""

    groups: Mapping[str, ResourceGroup]
    callers: Mapping[str, str] = field(default_factory=lambda: NO_CALLERS)
    quota_ru: int | None = None  # None: what the topmost groups add up to
    default_group: str = DEFAULT_GROUP  # made, with no quota of its own, if nothing names it
    epoch_us: int = ranged(1_000_000, 1_000, 86_400_000_000)
    kept_milli: int = ranged(100, 0, 1_000)  # of a quota: never lent
    debt_epochs: int = ranged(1, 0, 1_000)
    live: int = ranged(1, 1, 1 << 20)
    callers_max: int = ranged(10_000, 1, CALLERS_MAX)  # those that are named come on top

    def __post_init__(self) -> None:
        check_ranges("", self)
        within("groups", len(self.groups), 1, GROUPS_MAX)
        within("callers", len(self.callers), 0, NAMED_MAX)
        for name, group in self.groups.items():
            _check_group(f"groups.{name}", name, group, self.groups)
        for caller, name in self.callers.items():
            if name not in self.groups and name != self.default_group:
                raise BadValue(f"callers.{caller}", name, "name a group that is in groups")
        if self.quota_ru is not None:
            within("quota_ru", self.quota_ru, 1, RU_MAX)
        self._check_sums()

    def total_ru(self) -> int:
        """What all together may spend an epoch."""
        if self.quota_ru is not None:
            return self.quota_ru
        return sum(group.quota_ru for group in self.groups.values() if not group.parent)

    def _check_sums(self) -> None:
        sums: dict[str, int] = {}
        for group in self.groups.values():
            sums[group.parent] = sums.get(group.parent, 0) + group.quota_ru
        if self.total_ru() < 1:
            raise BadValue("quota_ru", self.quota_ru, "give a quota, here or to a topmost group")
        for parent, whole in sums.items():
            path = f"groups.{parent}.quota_ru" if parent else "quota_ru"
            most = self.groups[parent].quota_ru if parent else self.total_ru()
            if whole > most:
                raise BadValue(path, most, f"give {whole:,} or more: its groups are promised that")


def _check_group(
    path: str, name: str, group: ResourceGroup, groups: Mapping[str, ResourceGroup]
) -> None:
    if not name:
        raise BadValue("groups", name, "give each group a name")
    within(f"{path}.quota_ru", group.quota_ru, 0, RU_MAX)
    within(f"{path}.weight", group.weight, 1, WEIGHT_MAX)
    if group.ceiling_ru is not None:
        within(f"{path}.ceiling_ru", group.ceiling_ru, max(group.quota_ru, 1), RU_MAX)
    above, depth = group.parent, 1
    while above:
        if above not in groups:
            raise BadValue(f"{path}.parent", above, "name a group that is in groups")
        depth += 1
        if above == name or depth > DEPTH_MAX:
            raise BadValue(
                f"{path}.parent", group.parent, f"groups stand {DEPTH_MAX} deep, in no circle"
            )
        above = groups[above].parent


def read_groups(value: Mapping[str, object]) -> ResourceGroupsSettings:
    """The settings of a mapping as TOML, YAML or JSON gives it."""
    _check_fields("", value, WHOLE_FIELDS)
    groups: dict[str, ResourceGroup] = {}
    for name, fields in _parse_mapping("groups", value.get("groups", {})).items():
        path = f"groups.{name}"
        group = _parse_mapping(path, fields)
        _check_fields(f"{path}.", group, FIELDS)
        ceiling = group.get("ceiling_ru")
        groups[name] = ResourceGroup(
            quota_ru=_parse_int(f"{path}.quota_ru", group.get("quota_ru", 0)),
            ceiling_ru=None if ceiling is None else _parse_int(f"{path}.ceiling_ru", ceiling),
            weight=_parse_int(f"{path}.weight", group.get("weight", 1)),
            parent=_parse_name(f"{path}.parent", group.get("parent", "")),
        )
    callers = {
        caller: _parse_name(f"callers.{caller}", name)
        for caller, name in _parse_mapping("callers", value.get("callers", {})).items()
    }
    quota = value.get("quota_ru")
    default = _parse_name("default_group", value.get("default_group", DEFAULT_GROUP))
    if "default_group" in value and default not in groups:
        raise BadValue("default_group", default, "name a group that is in groups, or leave it out")
    return ResourceGroupsSettings(
        groups=groups,
        callers=callers,
        quota_ru=None if quota is None else _parse_int("quota_ru", quota),
        default_group=default,
    )


def _check_fields(path: str, value: Mapping[str, object], fields: tuple[str, ...]) -> None:
    for name in value:
        if name not in fields:
            raise BadValue(f"{path}{name}", value[name], f"the fields here are {', '.join(fields)}")


def _parse_mapping(path: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise BadValue(path, value, "give a mapping of names")
    return value


def _parse_int(path: str, value: object) -> int:
    if type(value) is not int:
        raise BadValue(path, value, "give a whole number")
    return value


def _parse_name(path: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadValue(path, value, "give a name")
    return value
