"""Resource groups: quotas in a tree, which lend what is unused and take it back.

A group has a quota that is guaranteed to it, and a ceiling up to which it may borrow; groups stand
within groups, and callers within groups (`group_settings.py`). Each epoch the root's quota is
shared out from above by what was demanded in the last two (`kernels/lending.py`): who demands its
quota has it, what others leave is lent by weight. What nobody has demanded stays in the pool of its
group, for whoever comes unforeseen: a charge takes from the caller's own part, then from the pools
above it, never beyond a ceiling on the way.

An owner that comes back finds `kept_milli` of its quota and what is in the pools, and has all of
its quota from the next epoch on, whatever the others do. In an epoch all together spend no more
than the root's quota and what was owed in the end: what costs more than its caller could ever have
in an epoch is admitted when that much is there, and owes the rest, up to `debt_epochs` of it. Debt
outlives the epoch and is paid first.

It is a `Budget` (`budgets.py`), in the place of a flat one. Over several dispatchers every quota is
divided: `set_part` says which part is this one's, 1 / live by default, and `set_parts` which part
of a single group's, by the demand for it here and elsewhere. The parts of all dispatchers add up to
the whole as far as they know of each other; `bounds` are what they can lease from a store so that
they never have more than that (`apps/kv/group_leases.py`). `replace` puts another tree in force.

Callers of a group are its children with no quota of their own, and share by weight one; who is not
named belongs to `default_group`. Beyond `callers_max` those of a group share one child.

Cost: a look-up and a climb of `DEPTH_MAX` at most a charge; an epoch's sharing looks at each child
once or twice. Bounds: `GROUPS_MAX`, `DEPTH_MAX`, `callers_max`. A caller that is idle for
`IDLE_EPOCHS` is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, final

from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.cost_model import MILLI
from sluicegate.kernels.lending import QuotaClaim, share_out
from sluicegate.kernels.verdict import NEVER, Verdict
from sluicegate.policies.quota.group_settings import ResourceGroup, ResourceGroupsSettings
from sluicegate.policies.settings import within

IDLE_EPOCHS: Final = 60
PART_ONE: Final = 1_000_000
NO_PARTS: Final[Mapping[str, int]] = {}
WHOLE: Final = ""  # among the bounds: all groups together


class GroupStanding(NamedTuple):
    """One group, in this epoch."""

    name: str
    quota_mru: int
    part_mru: int  # what it was given, with what was drawn from above since
    pool_mru: int  # what of it nobody has taken
    demand_mru: int
    callers: int


class ResourceGroupsStats(NamedTuple):
    """Levels now, counts since the beginning."""

    groups: int
    callers: int
    epochs: int
    admitted: int
    refused: int
    charged_mru: int
    lent_mru: int  # had beyond their own quotas by groups, at the epochs' beginnings


@final
class _Node:
    """A group, or a caller in one. Amounts are of this dispatcher and this epoch."""

    __slots__ = (
        "ceiling_mru",
        "children",
        "demand_mru",
        "granted_mru",
        "idle",
        "is_group",
        "level_mru",
        "name",
        "own_mru",
        "parent",
        "quota_mru",
        "requested_before_mru",
        "requested_mru",
        "shared",
        "wanted_mru",
        "weight",
        "whole_ceiling_mru",
        "whole_quota_mru",
    )

    def __init__(
        self,
        name: str,
        parent: _Node | None,
        quota_mru: int,
        ceiling_mru: int,
        weight: int,
        is_group: bool,
    ) -> None:
        self.name = name
        self.is_group = is_group
        self.parent = parent
        self.whole_quota_mru = quota_mru  # over all dispatchers
        self.whole_ceiling_mru = ceiling_mru
        self.quota_mru = quota_mru
        self.ceiling_mru = ceiling_mru
        self.weight = weight
        self.children: list[_Node] = []
        self.shared: _Node | None = None  # the child of callers beyond the bound
        self.level_mru = 0  # of a caller: what it has; of a group: its pool
        self.granted_mru = 0  # given, and drawn from above
        self.requested_mru = 0
        self.requested_before_mru = 0
        self.demand_mru = 0
        self.idle = 0
        self.own_mru = quota_mru  # of the whole quota, what its groups are not promised
        self.wanted_mru = 0  # the demand, whatever could be had of it here

    def take_over(self, before: _Node) -> None:
        """Have in this epoch what it had, and know of its demand what was known."""
        self.level_mru = before.level_mru
        self.granted_mru = before.granted_mru
        self.requested_mru = before.requested_mru
        self.requested_before_mru = before.requested_before_mru
        self.demand_mru = before.demand_mru
        self.wanted_mru = before.wanted_mru


@final
class ResourceGroups:
    """The tree of one dispatcher."""

    __slots__ = (
        "_admitted",
        "_callers",
        "_charged_mru",
        "_default",
        "_edge_us",
        "_epochs",
        "_groups",
        "_lent_mru",
        "_part",
        "_parts",
        "_refused",
        "_root",
        "settings",
    )

    def __init__(self, settings: ResourceGroupsSettings) -> None:
        self._build(settings)
        self._part = PART_ONE // settings.live
        self._parts: Mapping[str, int] = NO_PARTS
        self._edge_us = 0
        self._epochs = self._admitted = self._refused = 0
        self._charged_mru = self._lent_mru = 0

    def charge(self, caller: str, mru: int, now_us: int) -> Verdict:
        """Take so much of what this caller has, or may draw; or say when there could be enough."""
        self._advance_epoch(now_us)
        leaf = self._leaf(caller)
        leaf.requested_mru += mru
        most = self._most(leaf)
        if mru - most > most * self.settings.debt_epochs:
            self._refused += 1
            return self._verdict(leaf, False, NEVER, now_us)
        need = mru if mru < most else most
        missing = need - leaf.level_mru
        if missing > 0 and not self._draw(leaf, missing):
            self._refused += 1
            owed = -leaf.level_mru if leaf.level_mru < 0 else 0
            epochs = -(-(need + owed) // most)
            retry_us = self._edge_us - now_us + (epochs - 1) * self.settings.epoch_us
            return self._verdict(leaf, False, retry_us, now_us)
        leaf.level_mru -= mru
        self._admitted += 1
        self._charged_mru += mru
        return self._verdict(leaf, True, 0, now_us)

    def settle(self, caller: str, mru: int, now_us: int) -> int:
        """Debit an amount, or refund it if negative; return the part that was not debited.

        No fuller than what this epoch has given it, no deeper in debt than `debt_epochs`.
        """
        self._advance_epoch(now_us)
        leaf = self._leaf(caller)
        before = leaf.level_mru
        level = before - mru
        left = 0
        if mru > 0:
            deepest = -self._most(leaf) * self.settings.debt_epochs
            if level < deepest:
                level = deepest if before > deepest else before
                left = mru - (before - level)
        elif level > leaf.granted_mru:
            level = leaf.granted_mru if before < leaf.granted_mru else before
        leaf.level_mru = level
        return left

    def payable_mru(self, caller: str, now_us: int) -> int:
        """What an epoch may bring, and the debt that it may leave."""
        return self._most(self._leaf(caller)) * (1 + self.settings.debt_epochs)

    def set_live(self, live: int) -> None:
        """So many dispatchers share the quotas evenly."""
        within("groups.live", live, 1, PART_ONE)
        self._part = PART_ONE // live

    def set_parts(self, millionths: Mapping[str, int]) -> None:
        """The parts of single groups, by name, from the next epoch on; of others it stays even."""
        for name, part in millionths.items():
            within(f"groups.part.{name}", part, 0, PART_ONE)
        self._parts = millionths

    def demands(self, now_us: int) -> dict[str, int]:
        """What each group asked for lately, an epoch, in milli-RU; those that asked for nothing are
        left out.
        """
        self._advance_epoch(now_us)
        return {name: it.wanted_mru for name, it in self._groups.items() if it.wanted_mru > 0}

    def ceiling_mru(self, name: str) -> int:
        """What a group may have over all dispatchers, with what it borrows; 0 of none."""
        group = self._groups.get(name)
        return 0 if group is None else group.whole_ceiling_mru

    def bounds(self) -> dict[str, int]:
        """What no epoch may pass over all dispatchers, in milli-RU: the whole, and each ceiling."""
        ceilings = {
            name: self.ceiling_mru(name)
            for name, group in self.settings.groups.items()
            if group.ceiling_ru is not None
        }
        return {WHOLE: self._root.whole_quota_mru, **ceilings}

    def bounds_of(self, caller: str) -> list[str]:
        """The names of those of the bounds that a caller counts in."""
        groups = self.settings.groups
        name = self.settings.callers.get(caller, self.settings.default_group)
        names = [WHOLE]
        while name in groups:
            if groups[name].ceiling_ru is not None:
                names.append(name)
            name = groups[name].parent
        return names

    def replace(self, settings: ResourceGroupsSettings, now_us: int) -> None:
        """Another tree: lower ceilings hold at once, all else comes with the next epoch.

        Callers keep their debts, and what is known of their demand, wherever they are moved to.
        """
        self._advance_epoch(now_us)
        if settings.epoch_us != self.settings.epoch_us:
            raise BadValue("epoch_us", settings.epoch_us, "it cannot change while serving")
        root, groups, callers = self._root, self._groups, self._callers
        self._build(settings)
        self._root.take_over(root)
        for name, group in self._groups.items():
            if name in groups:
                group.take_over(groups[name])
        for name, leaf in callers.items():
            if len(self._callers) < settings.callers_max or name in settings.callers:
                self._leaf(name).take_over(leaf)
        self._scale(self._root)

    def groups(self, now_us: int) -> list[GroupStanding]:
        """How each group stands."""
        self._advance_epoch(now_us)
        return [
            GroupStanding(
                name,
                group.quota_mru,
                group.granted_mru,
                group.level_mru,
                group.demand_mru,
                sum([1 for child in group.children if not child.is_group]),
            )
            for name, group in self._groups.items()
        ]

    def stats(self) -> ResourceGroupsStats:
        """What it looks like now."""
        return ResourceGroupsStats(
            len(self._groups),
            len(self._callers),
            self._epochs,
            self._admitted,
            self._refused,
            self._charged_mru,
            self._lent_mru,
        )

    def _build(self, settings: ResourceGroupsSettings) -> None:
        self.settings = settings
        total = settings.total_ru() * MILLI
        self._root = _Node("", None, total, total, 1, True)
        self._groups: dict[str, _Node] = {}
        for name in settings.groups:
            self._add_group(name)
        default = self._groups.get(settings.default_group)
        if default is None:
            default = self._child(self._root, settings.default_group, ResourceGroup())
            self._groups[settings.default_group] = default
        self._default = default
        self._callers: dict[str, _Node] = {}

    def _most(self, leaf: _Node) -> int:
        """What it has in an epoch in which all others are idle, whatever is kept for them."""
        most = leaf.ceiling_mru * (1_000 - self.settings.kept_milli) // 1_000
        return most if most > 1 else 1

    def _add_group(self, name: str) -> _Node:
        """The group of that name, and those above it."""
        node = self._groups.get(name)
        if node is None:
            group = self.settings.groups[name]
            parent = self._add_group(group.parent) if group.parent else self._root
            node = self._groups[name] = self._child(parent, name, group)
        return node

    def _child(self, parent: _Node, name: str, group: ResourceGroup) -> _Node:
        ceiling = parent.whole_ceiling_mru
        if group.ceiling_ru is not None and group.ceiling_ru * MILLI < ceiling:
            ceiling = group.ceiling_ru * MILLI
        node = _Node(name, parent, group.quota_ru * MILLI, ceiling, group.weight, True)
        parent.children.append(node)
        parent.own_mru -= node.whole_quota_mru
        return node

    def _leaf(self, caller: str) -> _Node:
        leaf = self._callers.get(caller)
        if leaf is not None:
            return leaf
        settings = self.settings
        named = settings.callers.get(caller)
        group = self._default if named is None else self._groups[named]
        if len(self._callers) >= settings.callers_max and named is None:
            leaf = group.shared
            if leaf is None:
                leaf = group.shared = self._add_caller(group, "")
            return leaf
        leaf = self._callers[caller] = self._add_caller(group, caller)
        return leaf

    def _add_caller(self, group: _Node, name: str) -> _Node:
        leaf = _Node(name, group, 0, group.whole_ceiling_mru, 1, False)
        leaf.ceiling_mru = group.ceiling_mru
        group.children.append(leaf)
        return leaf

    def _draw(self, leaf: _Node, missing: int) -> bool:
        """Have the pools above bring what is missing, the nearest first; all of it or nothing."""
        room = leaf.ceiling_mru - leaf.granted_mru
        rest = missing
        sources: list[tuple[_Node, int]] = []
        group = leaf.parent
        while group is not None and rest > 0:
            piece = min(group.level_mru, room, rest)
            if piece < 0:
                piece = 0
            sources.append((group, piece))
            rest -= piece
            room = min(room - piece, group.ceiling_mru - group.granted_mru)
            group = group.parent
        if rest > 0:
            return False
        leaf.level_mru += missing
        leaf.granted_mru += missing
        through = missing  # what comes from above a group, it has had too
        for group, piece in sources:
            through -= piece
            group.level_mru -= piece
            group.granted_mru += through
        return True

    def _advance_epoch(self, now_us: int) -> None:
        """At the beginning of an epoch, share the root's quota out."""
        if now_us < self._edge_us:
            return
        epoch_us = self.settings.epoch_us
        edge_us = (now_us // epoch_us + 1) * epoch_us
        passed = (edge_us - self._edge_us) // epoch_us
        self._edge_us = edge_us
        self._epochs += 1
        self._scale(self._root)
        self._measure_demand(self._root, passed)
        self._distribute(self._root, self._root.quota_mru)

    def _scale(self, node: _Node) -> None:
        """Of all quotas and ceilings below, this dispatcher's part: over all they add up."""
        part = self._parts.get(node.name, self._part)
        quota = node.own_mru * part // PART_ONE
        for child in node.children:
            if child.is_group:
                self._scale(child)
                quota += child.quota_mru
        node.quota_mru = quota
        ceiling = quota + (node.whole_ceiling_mru - node.whole_quota_mru) * part // PART_ONE
        node.ceiling_mru = ceiling if ceiling > 1 else 1
        for child in node.children:
            if not child.is_group:
                child.ceiling_mru = node.ceiling_mru

    def _measure_demand(self, node: _Node, passed: int) -> int:
        """What it demands: the most of the last two epochs, and what it owes. Forget the idle."""
        ceiling = node.ceiling_mru
        if node.is_group:
            remaining: list[_Node] = []
            demand = wanted = 0
            for child in node.children:
                demand += self._measure_demand(child, passed)
                wanted += child.wanted_mru
                if child.is_group or child.idle < IDLE_EPOCHS:
                    remaining.append(child)
                elif child is node.shared:
                    node.shared = None
                else:
                    del self._callers[child.name]
            node.children = remaining
            node.wanted_mru = min(wanted, node.whole_ceiling_mru)
            node.demand_mru = demand if demand < ceiling else ceiling
            return node.demand_mru
        if passed > 1:  # Nobody has asked for anything in between.
            node.requested_before_mru = node.requested_mru if passed == 2 else 0
            node.requested_mru = 0
            if passed > 1 + self.settings.debt_epochs and node.level_mru < 0:
                node.level_mru = 0
        owed = -node.level_mru if node.level_mru < 0 else 0
        demand = max(node.requested_mru, node.requested_before_mru) + owed
        node.wanted_mru = demand
        node.idle = 0 if demand else node.idle + passed
        node.requested_before_mru = node.requested_mru
        node.requested_mru = 0
        node.demand_mru = demand if demand < ceiling else ceiling
        return node.demand_mru

    def _distribute(self, node: _Node, amount: int) -> None:
        """This node's part of the epoch, shared out among its children; the rest is its pool."""
        node.granted_mru = amount
        if amount > node.quota_mru:
            self._lent_mru += amount - node.quota_mru
        if not node.is_group:
            node.level_mru = amount + (node.level_mru if node.level_mru < 0 else 0)
            return
        claims = [
            QuotaClaim(child.quota_mru, child.ceiling_mru, child.weight, child.demand_mru)
            for child in node.children
        ]
        parts = share_out(amount, claims, self.settings.kept_milli)
        for child, part in zip(node.children, parts, strict=True):
            self._distribute(child, part)
        node.level_mru = amount - sum(parts)

    def _verdict(self, leaf: _Node, allowed: bool, retry_us: int, now_us: int) -> Verdict:
        level = leaf.level_mru
        return Verdict(allowed, level if level > 0 else 0, retry_us, self._edge_us - now_us)
