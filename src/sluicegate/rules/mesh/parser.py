"""Parse: from the plain values of a file for a mesh to a domain, with every problem noted.

The format is that of envoyproxy/ratelimit: a domain, and a tree of descriptors. What that service
refuses is refused here, with the line and what to do; what it takes is taken, and a few fields more
(see `limit_fields.py`). The tree is walked once, in the order of the file, for of several globs the
first that matches wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, final

from sluicegate.contracts.criticality import Criticality, parse_criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.kernels.glob_index import parse as parse_glob
from sluicegate.limits.rule import Mode
from sluicegate.rules.mesh.identity import rule_id
from sluicegate.rules.mesh.limit_fields import LimitFields, ParsedLimit
from sluicegate.rules.mesh.rule import (
    EXACT,
    SHARED_BY_PATTERN,
    VARYING,
    Counting,
    Form,
    MeshRule,
    Path,
    Semantics,
)
from sluicegate.rules.problems import FieldPath, Problems
from sluicegate.rules.shared_limits import SharedLimits

DEPTH_MAX: Final = 16
LIMITS_A_RULE_MAX: Final = 8
TOP: Final = ("domain", "descriptors")
NODE: Final = (
    "key",
    "value",
    "rate_limit",
    "rate_limits",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
    "priority",
    "mode",
)
_FLAGS: Final = (
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
)


@final
class Domain:
    """The rules of one domain of one file: paths, and what stands at their ends.

    A path without a rule is an allow-list's: it takes requests away from wider rules.
    """

    __slots__ = ("line", "name", "rules", "source")

    def __init__(
        self, name: str, rules: list[tuple[Path, MeshRule | None]], source: str, line: int
    ) -> None:
        self.name = name
        self.rules = rules
        self.source = source
        self.line = line


def is_mesh(value: object) -> bool:
    """Whether plain values are in this format, and not in another of ours."""
    return isinstance(value, dict) and "domain" in value


def parse_domain(
    value: object,
    problems: Problems,
    shared_limits: SharedLimits,
    semantics: Semantics,
    *,
    source: str = "",
    line: int = 0,
) -> Domain | None:
    """The domain that a whole file says; None if it has none. What is wrong is in `problems`.

    `source` and `line` say where the domain stands, for the error of two files that say the same.
    """
    return _Parser(problems, shared_limits, semantics).file(value, source, line)


class _Above(NamedTuple):
    """What the nodes above contribute."""

    path: Path
    levels: tuple[int, ...]
    real: tuple[int, ...]


@final
class _Parser:
    """Walks the tree, and knows where it is."""

    __slots__ = ("_domain", "_forms", "_limits", "_rules", "_texts")

    def __init__(
        self, problems: Problems, shared_limits: SharedLimits, semantics: Semantics
    ) -> None:
        self._limits = LimitFields(problems, shared_limits, semantics)
        self._forms: dict[tuple[object, ...], Form] = {}
        self._rules: list[tuple[Path, MeshRule | None]] = []
        self._texts: dict[str, str] = {}
        self._domain = ""

    def file(self, value: object, source: str, line: int) -> Domain | None:
        if not isinstance(value, dict):
            self._limits.refuse((), value, "a file for a mesh has a domain and descriptors")
            return None
        self._limits.refuse_unknown((), value, TOP)
        domain = self._limits.text(("domain",), value.get("domain"))
        if not domain:
            self._limits.refuse(
                ("domain",), value.get("domain"), "name the domain: it must not be empty"
            )
            return None
        self._domain = domain
        self._level(("descriptors",), value.get("descriptors"), _Above((), (), ()))
        return Domain(domain, self._rules, source, line)

    def _level(self, at: FieldPath, value: object, above: _Above) -> None:
        """All nodes beside each other."""
        if value is None:
            return
        if not isinstance(value, list):
            self._limits.refuse(at, value, "give a list of descriptors, each with a key")
            return
        if len(above.path) >= DEPTH_MAX:
            self._limits.refuse(at, "...", f"at most {DEPTH_MAX} descriptors in one another")
            return
        exact: set[tuple[str, str | None]] = set()
        globs: set[tuple[str, tuple[str, ...]]] = set()
        for place, node in enumerate(value):
            here = (*at, place)
            if not isinstance(node, dict):
                self._limits.refuse(here, node, "a descriptor is a mapping with a key")
                continue
            self._limits.refuse_unknown(here, node, NODE)
            key = self._limits.text((*here, "key"), node.get("key"))
            value = self._limits.text((*here, "value"), node.get("value")) or None
            if not key:
                # An item of a list has no line of its own; its first field has.
                first = "key" if "key" in node else next(iter(node), "key")
                remedy = "name the key of this descriptor: it must not be empty"
                self._limits.refuse((*here, first), node.get("key"), remedy)
                continue
            if (key, value) in exact:
                shown = key if value is None else f"{key}: {value}"
                self._limits.refuse(
                    (*here, "key"), shown, "it stands twice at this level; keep one"
                )
                continue
            exact.add((key, value))
            if value is not None and "*" in value:
                glob = (key, parse_glob(value))
                if glob in globs:
                    continue  # another spelling of an earlier one, which wins always
                globs.add(glob)
            self._node(here, node, key, value, above)

    def _node(
        self, at: FieldPath, node: Mapping[str, object], key: str, value: str | None, above: _Above
    ) -> None:
        flags = {
            name: self._limits.flag((*at, name), node.get(name)) is True
            for name in _FLAGS
            if name in node
        }
        is_glob = value is not None and "*" in value
        shared = flags.get("share_threshold", False)
        if shared and not is_glob:
            remedy = "leave it out, or give a value with a '*' in it"
            self._limits.refuse((*at, "share_threshold"), True, remedy)
        depth = len(above.path)
        level = SHARED_BY_PATTERN if shared else VARYING if is_glob or value is None else EXACT
        real = above.real
        if flags.get("value_to_metric", False) and level != SHARED_BY_PATTERN:
            real = (*real, depth)
        step = (self._intern(key), None if value is None else self._intern(value))
        below = _Above((*above.path, step), (*above.levels, level), real)
        rule = self._rule(at, node, flags, below)
        children = node.get("descriptors")
        if rule is not None or not children:
            self._rules.append((below.path, rule))
        self._level((*at, "descriptors"), children, below)

    def _rule(
        self, at: FieldPath, node: Mapping[str, object], flags: Mapping[str, bool], below: _Above
    ) -> MeshRule | None:
        mode = self._mode(at, node, flags)
        priority = self._priority((*at, "priority"), node.get("priority"))
        metadata = node.get("metadata")
        if metadata is not None and not isinstance(metadata, dict):
            self._limits.refuse((*at, "metadata"), metadata, "give a mapping")
            metadata = None
        value = self._limits_of(at, node, mode)
        if not value or mode is Mode.OFF:
            return None
        countings = tuple([one.counting for one in value if one.counting is not None])
        names = tuple([one.name for one in value if one.name])
        replaces = frozenset(name for one in value for name in one.replaces)
        levels, real = below.levels, below.real
        if flags.get("detailed_metric", False):
            real = tuple(range(len(levels)))
        shadow, quota = mode is Mode.SHADOW, flags.get("quota_mode", False)
        key = (countings, levels, names, replaces, shadow, quota, priority, real)
        form = self._forms.get(key) if metadata is None else None
        if form is None:
            form = Form(
                countings,
                levels,
                names=names,
                replaces=replaces,
                shadow=shadow,
                quota=quota,
                priority=priority,
                real=real,
                metadata=metadata,
            )
            if metadata is None:
                self._forms[key] = form
        return MeshRule(form, rule_id(self._domain, below.path))

    def _limits_of(
        self, at: FieldPath, node: Mapping[str, object], mode: Mode
    ) -> list[ParsedLimit]:
        one, several = node.get("rate_limit"), node.get("rate_limits")
        if several is None:
            if one is None:
                return []
            if not isinstance(one, dict):
                self._limits.refuse(
                    (*at, "rate_limit"), one, "give a mapping: {unit, requests_per_unit}"
                )
                return []
            value = self._limits.read((*at, "rate_limit"), one, mode)
            return [] if value is None else [value]
        here = (*at, "rate_limits")
        if one is not None:
            self._limits.refuse(
                here, "...", "leave it out, or rate_limit: put all limits into one list"
            )
            return []
        if not isinstance(several, list) or not 1 <= len(several) <= LIMITS_A_RULE_MAX:
            self._limits.refuse(here, several, f"give a list of 1 to {LIMITS_A_RULE_MAX} limits")
            return []
        return self._each(here, several, mode)

    def _each(self, at: FieldPath, several: list[object], mode: Mode) -> list[ParsedLimit]:
        found: list[ParsedLimit] = []
        periods: set[int] = set()
        for place, one in enumerate(several):
            if not isinstance(one, dict):
                self._limits.refuse((*at, place), one, "give a mapping: {unit, requests_per_unit}")
                continue
            if one.get("unlimited") is True:
                self._limits.refuse(
                    (*at, place, "unlimited"), True, "it stands alone, under rate_limit"
                )
                continue
            value = self._limits.read((*at, place), one, mode)
            if value is None:
                continue
            counting: Counting | None = value.counting
            period_us = 0 if counting is None else counting.period_us
            if counting is not None and not counting.blocks and period_us in periods:
                self._limits.refuse(
                    (*at, place), "...", "another limit here has this window; keep one"
                )
            periods.add(period_us)
            found.append(value)
        return found

    # Fields.

    def _mode(self, at: FieldPath, node: Mapping[str, object], flags: Mapping[str, bool]) -> Mode:
        shadow = flags.get("shadow_mode", False)
        value = node.get("mode")
        if value is None:
            return Mode.SHADOW if shadow else Mode.ENFORCE
        for mode in Mode:
            if value == mode.value:
                if shadow and mode is not Mode.SHADOW:
                    self._limits.refuse((*at, "mode"), value, "leave it out, or shadow_mode")
                return mode
        self._limits.refuse((*at, "mode"), value, "give one of enforce, shadow, off")
        return Mode.ENFORCE

    def _priority(self, at: FieldPath, value: object) -> Criticality | None:
        if value is None:
            return None
        try:
            return parse_criticality(self._limits.text(at, value))
        except BadValue as error:
            self._limits.refuse(at, value, error.remedy)
            return None

    def _intern(self, text: str) -> str:
        """Equal texts are kept once."""
        return self._texts.setdefault(text, text)
