"""Rule set of a web application: all rules of a version, compiled; makes claims of an arrival.

Every match rule that matches has a say, and they decide together, all or nothing. Two things say
less: a rule with `stop` ends the search when it applies, and an exemption that matches ends all,
wherever it stands. So a file can be read from the top, and nothing in it is overruled by being
specific. Beside them the rows of the file apply as in a service, the most specific of them.

One look-up by path and method leaves a few rules; what else they ask (a header, the user, the
address) is asked of those alone. Where many ask for different values of the same header, as with a
rule a tenant, the value is looked up too, and their number does not matter.

A rule that lacks its key tries its `or_key`, and without that it does not apply; whoever asks is
told, because nobody should go unlimited unnoticed. No bucket is ever shared by accident.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType
from typing import Final, NamedTuple, final

from sluicegate.contracts.arrival import Arrival
from sluicegate.contracts.errors import BadValue
from sluicegate.limits.claims import Claim
from sluicegate.limits.limiter import CLAIMS_MAX
from sluicegate.limits.rule import Mode, Rule
from sluicegate.rules.arrivals import check_request
from sluicegate.rules.parser import parse_native
from sluicegate.rules.plain_values import FILE_BYTES_MAX, form_of, read_bytes, read_text
from sluicegate.rules.problems import FieldPath, Problems, with_item_lines
from sluicegate.rules.resources.compiler import compile_rules
from sluicegate.rules.resources.paths import CELL_MAX
from sluicegate.rules.resources.rule import ResourceRule
from sluicegate.rules.resources.rule_set import ResourceRuleSet
from sluicegate.rules.resources.service import claims_of, resolve
from sluicegate.rules.rule_fields import VERSION
from sluicegate.rules.shared_limits import SharedLimits
from sluicegate.rules.web.keys import KeyOf, key_reader
from sluicegate.rules.web.paths import EVERY_PATH, file_paths
from sluicegate.rules.web.rule import HeaderCost, MatchRule, Test, reader_of, test_of

RULES_MAX: Final = 1_000
# An arrival falls under one cell of rows, and the quota of its caller.
ROWS_AT_ONCE: Final = CELL_MAX + 1
# As many rules that ask for a value of the same thing are looked up by it.
GROUP_MIN: Final = 4

Keyless = Callable[[str], None]


class MatchedRule(NamedTuple):
    """A rule that matches an arrival; with an empty key it does not apply."""

    entry: MatchRule | ResourceRule
    key: str
    cost: int


@final
class WebRuleSet:
    """All rules of a version.

    Made from a file (`load`), a text (`parse`) or Python's own values (`of`). `entries` are the
    match rules as written, `rows` has the rows, if there are any; `rules` is what a limiter needs
    to know of both, by name. `version` is the hash of the source: for a file, the first
    12 characters that `sha256sum` shows.
    """

    __slots__ = ("_paths", "entries", "rows", "rules", "source", "version")

    def __init__(
        self,
        entries: Sequence[MatchRule],
        *,
        source: str,
        version: str,
        rows: ResourceRuleSet | None = None,
        row_limits: Mapping[str, Rule] | None = None,
    ) -> None:
        self.entries: Final = tuple(entries)
        self.rows: Final = rows
        self.source: Final = source
        self.version: Final = version
        self.rules: Final[Mapping[str, Rule]] = MappingProxyType(
            {
                **{entry.rule_id: entry.rule for entry in self.entries if entry.rule is not None},
                **(row_limits or {}),
            }
        )
        claims_max = CLAIMS_MAX if rows is None else CLAIMS_MAX - ROWS_AT_ONCE
        steps = [_Step(place, entry) for place, entry in enumerate(self.entries) if not entry.off]
        patterns = [
            (pattern, 1 << place)
            for place, step in enumerate(steps)
            for pattern in step.entry.match.paths or (EVERY_PATH,)
        ]

        def rules_at(bits: int) -> _PathRules:
            return _PathRules(
                [step for place, step in enumerate(steps) if bits >> place & 1], claims_max
            )

        # So that there are rules for every path, if only none.
        self._paths: Final = file_paths([(EVERY_PATH, 0), *patterns], rules_at)

    @classmethod
    def of(
        cls, rules: Mapping[str, object] | Sequence[object], *, rules_max: int = RULES_MAX
    ) -> WebRuleSet:
        """The book that Python's own values say: what a file says, or only its rules as a list."""
        fields: dict[str, object] = {"version": VERSION}
        fields.update(rules if isinstance(rules, Mapping) else {"rules": list(rules)})
        return cls._compile(fields, {}, "the rules", b"", rules_max)

    @classmethod
    def parse(
        cls,
        text: str | bytes,
        *,
        form: str = "yaml",
        source: str = "the rules",
        rules_max: int = RULES_MAX,
    ) -> WebRuleSet:
        """The book that a text says; `form` is yaml or toml. `BadRules` tells all that is wrong."""
        read = read_text(text, form=form, source=source)
        data = text.encode("utf-8") if isinstance(text, str) else text
        return cls._compile(read.value, read.lines, source, data, rules_max)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        bytes_max: int = FILE_BYTES_MAX,
        rules_max: int = RULES_MAX,
    ) -> WebRuleSet:
        """The book that a file says, in the form that its name ends with."""
        form = form_of(path)
        data = read_bytes(path, bytes_max)
        return cls.parse(data, form=form, source=os.fspath(path), rules_max=rules_max)

    @classmethod
    def _compile(
        cls,
        value: object,
        lines: Mapping[FieldPath, int],
        source: str,
        data: bytes,
        rules_max: int,
    ) -> WebRuleSet:
        problems = Problems(source, with_item_lines(lines))
        shared_limits = SharedLimits()
        file = parse_native(value, problems, shared_limits, rules_max=rules_max)
        problems.raise_if_any()
        assert file is not None

        def complain(_file: int, at: FieldPath, value: object, remedy: str) -> None:
            problems.add(at, value, remedy)

        rows: ResourceRuleSet | None = compile_rules([file], complain, rules_max=rules_max)
        if file.callers is None and not file.rules:
            rows = None
            if not file.rules_count:
                problems.add(("rules",), [], "give at least one rule, by its name")
        problems.raise_if_any()
        said = [*map(repr, file.matching), *([] if rows is None else [repr(value)])]
        source_bytes = data or "\n".join(said).encode("utf-8", "surrogatepass")
        version = sha256(source_bytes).hexdigest()[:12]
        limits = shared_limits.rules
        try:
            return cls(file.matching, source=source, version=version, rows=rows, row_limits=limits)
        except ValueError as error:  # no rule is wrong, but all of them are too much together
            remedy = error.remedy if isinstance(error, BadValue) else str(error)
            problems.add(("rules",), f"{len(file.matching)} rules", remedy)
            problems.raise_if_any()
            raise

    def claims(self, arrival: Arrival, keyless: Keyless | None = None) -> list[Claim]:
        """What is to be claimed for an arrival, in the order of the rules.

        `keyless` is told the name of a rule that matched and had no key, and so does not apply.
        """
        claims: list[Claim] = []
        candidates = self._candidates(arrival)
        if candidates is None:
            return claims
        for step in candidates:
            for test in step.tests:
                if not test(arrival):
                    break
            else:
                key = step.key(arrival)
                if not key and step.or_key is not None:
                    key = step.or_key(arrival)
                if key:
                    claims.append(Claim(key, step.name, step.cost or step.cost_of(arrival)))
                    if step.stop:
                        break
                elif keyless is not None:
                    keyless(step.name)
        if self.rows is not None:
            request = check_request(arrival)
            claims += claims_of(request, resolve(self.rows, request))
        return claims

    def matches(self, arrival: Arrival) -> list[MatchedRule]:
        """The rules that match, with the key each would use: for people who ask why.

        An exemption that matches stands alone.
        """
        path_rules = self._paths.find(arrival.path)
        if path_rules is None:
            return []
        cell = path_rules.by_method.get(arrival.method, path_rules.others)
        for step in (*cell.closed, *cell.exemptions):
            if step.fits(arrival):
                return [MatchedRule(step.entry, "", 0)]
        matched: list[MatchedRule] = []
        for step in cell.candidates(arrival):
            if step.fits(arrival):
                key = step.key(arrival) or (step.or_key(arrival) if step.or_key else "")
                matched.append(MatchedRule(step.entry, key, step.cost or step.cost_of(arrival)))
                if key and step.stop:
                    break
        if self.rows is not None:
            request = check_request(arrival)
            resolved = resolve(self.rows, request)
            for rule in resolved.rules:
                entity = rule.key(resolved.user, resolved.path).entity
                matched.append(MatchedRule(rule, entity, resolved.cost))
        return matched

    def listed_rows(self) -> list[ResourceRule]:
        """All rows that are not off."""
        rows = self.rows
        return (
            [] if rows is None else [it for n in range(rows.portions) for it in rows.portion(n, "")]
        )

    def __len__(self) -> int:
        return len(self.entries) + (0 if self.rows is None else len(self.rows))

    def __repr__(self) -> str:
        return f"<WebRuleSet {self.source!r}, version {self.version}, {len(self)} rules>"

    def _candidates(self, arrival: Arrival) -> Iterable[_Step] | None:
        """The match rules that may apply; None where an exemption does."""
        path_rules = self._paths.find(arrival.path)
        if path_rules is None:
            return ()
        cell = path_rules.by_method.get(arrival.method, path_rules.others)
        for step in cell.exemptions:
            for test in step.tests:
                if not test(arrival):
                    break
            else:
                return None
        if cell.closed:
            return None
        return cell.candidates(arrival) if cell.groups else cell.always


@final
class _Step:
    """An entry, made ready to be asked."""

    __slots__ = (
        "cost",
        "cost_of",
        "entry",
        "key",
        "name",
        "or_key",
        "place",
        "stop",
        "tests",
    )

    def __init__(self, place: int, entry: MatchRule) -> None:
        self.place = place
        self.entry = entry
        self.name = entry.rule_id
        self.tests: tuple[Test, ...] = tuple(map(test_of, entry.match.conditions))
        self.key: KeyOf = key_reader(entry.key) if entry.key is not None else _no_key
        self.or_key = None if entry.or_key is None else key_reader(entry.or_key)
        self.cost = entry.cost if isinstance(entry.cost, int) else 0
        self.cost_of = _one if isinstance(entry.cost, int) else _cost_reader(entry.cost)
        # A trial must not change what is admitted, so it stops nothing either.
        self.stop = entry.stop and entry.rule is not None and entry.rule.mode is Mode.ENFORCE

    def fits(self, arrival: Arrival) -> bool:
        return all(test(arrival) for test in self.tests)


@final
class _PathRules:
    """The rules for some paths, by method."""

    __slots__ = ("by_method", "others")

    def __init__(self, steps: Sequence[_Step], claims_max: int) -> None:
        methods = {method for step in steps for method in step.entry.match.methods}
        self.others = _Cell([s for s in steps if not s.entry.match.methods], claims_max)
        self.by_method = {
            method: _Cell(
                [s for s in steps if not s.entry.match.methods or method in s.entry.match.methods],
                claims_max,
            )
            for method in methods
        }


@final
class _Cell:
    """The rules for a path and a method: those to be asked always, and those found by a value.

    Where an exemption asks nothing more, `closed` has it and there is nothing else.
    """

    __slots__ = ("always", "closed", "exemptions", "groups")

    def __init__(self, steps: Sequence[_Step], claims_max: int) -> None:
        self.exemptions = tuple(step for step in steps if step.entry.exempt)
        limited = [step for step in steps if not step.entry.exempt]
        self.closed = tuple(step for step in self.exemptions if not step.tests)
        if self.closed:
            self.exemptions, limited = (), []
        groups = _group(limited)
        grouped = {
            step.place for values in groups.values() for at in values.values() for step in at
        }
        self.always = tuple(step for step in limited if step.place not in grouped)
        self.groups = tuple((reader_of(what), values) for what, values in groups.items())
        most = len(self.always) + sum(
            max(len(at) for at in values.values()) for values in groups.values()
        )
        if most > claims_max:
            raise ValueError(
                f"up to {most} of them match one request, and at most {claims_max} may; "
                "narrow what they match"
            )

    def candidates(self, arrival: Arrival) -> Iterable[_Step]:
        steps: list[_Step] = []
        for read, values in self.groups:
            steps += values.get(read(arrival), ())
        if not steps:
            return self.always
        steps += self.always
        steps.sort(key=_place)
        return steps


def _group(steps: Sequence[_Step]) -> dict[str, dict[str, list[_Step]]]:
    """Steps by the thing and the value they ask for, where many ask for values of one thing."""
    by_condition: dict[str, list[tuple[_Step, tuple[str, ...]]]] = {}
    for step in steps:
        for condition in step.entry.match.conditions:
            if condition.exact_values:
                by_condition.setdefault(condition.what, []).append((step, condition.exact_values))
                break
    groups: dict[str, dict[str, list[_Step]]] = {}
    for what, those in by_condition.items():
        if len(those) >= GROUP_MIN:
            values = groups.setdefault(what, {})
            for step, expected in those:
                for value in expected:
                    values.setdefault(value, []).append(step)
    return groups


def _cost_reader(cost: HeaderCost) -> Callable[[Arrival], int]:
    return lambda arrival: cost.of(arrival.header(cost.header))


def _one(_: Arrival) -> int:
    return 1


def _no_key(_: Arrival) -> str:
    return ""


def _place(step: _Step) -> int:
    return step.place
