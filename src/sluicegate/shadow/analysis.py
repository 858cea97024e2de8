"""Analysis: what a replay found, by rule, by class, by caller.

Five counts are kept of everything: how many requests, how many the current rules refused, how many
the candidate refused, and of the difference both halves apart. *Newly refused* is what the current
admits and the candidate refuses; *newly admitted* the other way round. Who is refused by both is
refused already, and no fault of the candidate's.

A request is of the class that the current rules give it. A candidate may give it another, and then
the CRITICAL share is worked out both ways: calling traffic by another name must not hide what
happens to it. Where there are no current rules the candidate's classes hold.

What came while its limits still had no history is early; the rest is later. Early figures may be
wrong in both directions, so shares are reported of all and of the later alone.

Everything is in a fixed order, so that the same replay makes the same report. Bounds:
`EXAMPLES_MAX` of who is newly refused, and `RULE_EXAMPLES_MAX` of them for each rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

from sluicegate.contracts.checks import CheckRequest
from sluicegate.contracts.criticality import Criticality
from sluicegate.shadow.pair import EARLY, LATER, rule_history_us
from sluicegate.shadow.replay import ReplayResult
from sluicegate.shadow.rule_texts import RuleName, RuleText, name_of, rule_text, rules_of_changed
from sluicegate.shadow.side import AnyRule, PreparedQuery, Query

EXAMPLES_MAX: Final = 20
RULE_EXAMPLES_MAX: Final = 3
QUERY_CHARS_MAX: Final = 160

SAME: Final = "same"
CHANGED: Final = "changed"
ADDED: Final = "added"
REMOVED: Final = "removed"


@dataclass(slots=True)
class RefusalCounts:
    """The counts of something, of all its requests; `early` came without history."""

    requests: int = 0
    refused_by_current: int = 0
    refused_by_candidate: int = 0
    refused_already: int = 0
    newly_refused: int = 0
    newly_admitted: int = 0
    early: int = 0
    later_refused_already: int = 0  # with history
    later_newly_refused: int = 0

    @property
    def later(self) -> int:
        """The requests with history."""
        return self.requests - self.early

    def add(self, phase: int, did: int, would: int, times: int) -> None:
        """So many requests to which this was done."""
        self.requests += times
        if phase == EARLY:
            self.early += times
        if did:
            self.refused_by_current += times
        if would:
            self.refused_by_candidate += times
        if did and would:
            self.refused_already += times
            if phase == LATER:
                self.later_refused_already += times
        elif did:
            self.newly_admitted += times
        elif would:
            self.newly_refused += times
            if phase == LATER:
                self.later_newly_refused += times


class Example(NamedTuple):
    """Somebody who is newly refused: with what, by which rule, how often, and when first."""

    entity: str
    asked: str
    criticality: Criticality
    rule: RuleName
    times: int
    requests: int
    first_us: int  # from the beginning


@dataclass(slots=True)
class RuleRow:
    """A rule: what it says in each rule set, and what it did.

    `requests` are those that met it in either set, whoever refused them; the other counts are of
    what this rule itself refused. `tried` counts what it would have refused were it enforced.
    """

    kind: str
    rule_id: str
    change: str = SAME
    current: str = ""
    candidate: str = ""
    counts_together: bool = False
    requests: int = 0
    refused_by_current: int = 0
    refused_by_candidate: int = 0
    newly_refused: int = 0
    newly_admitted: int = 0
    tried_by_current: int = 0
    tried_by_candidate: int = 0
    examples: list[Example] = field(default_factory=list)


class Pinned(NamedTuple):
    """A caller of whom nobody may be newly refused."""

    name: str
    requests: int
    newly_refused: int


class Agreement(NamedTuple):
    """What the service decided, beside what the current rules decide in the replay."""

    known: int
    admitted_both: int
    refused_both: int
    only_answered: int  # refused then, admitted in the replay
    only_replayed: int  # admitted then, refused in the replay


@final
class Analysis:
    """All of it. `rows` are the rules that saw requests or have changed, the most telling first."""

    def __init__(self, result: ReplayResult) -> None:
        self.result: Final = result
        self.by_candidate: Final = result.pair.by_candidate
        self.classes: dict[Criticality, RefusalCounts] = {
            one: RefusalCounts() for one in Criticality
        }
        self.critical: Final = self.classes[Criticality.CRITICAL]
        self.critical_there = RefusalCounts()  # by the candidate's classes
        self.reclassified = 0
        self.undercounted = 0  # requests that met a rule which counts several entities together
        self.history_us = 0  # the longest that any rule looks back that saw a request
        self.rows: list[RuleRow] = []
        self.changes: dict[str, list[RuleName]] = {}
        self.examples: list[Example] = []
        self.pinned: list[Pinned] = []
        self.agreement = Agreement(0, 0, 0, 0, 0)

    @property
    def requests(self) -> int:
        """All requests that are valid under both rule sets."""
        return sum(counts.requests for counts in self.classes.values())

    @property
    def span_us(self) -> int:
        """How long the capture is."""
        return self.result.ends_us - self.result.began_us


def analyse(result: ReplayResult, *, pinned: Iterable[str] = ()) -> Analysis:
    """Analyse a replay; callers that either rule set pins are pinned besides those given."""
    analysis = Analysis(result)
    rows: dict[RuleName, RuleRow] = {}
    _note_changes(analysis, rows)
    pair, traffic = result.pair, result.traffic
    pins = {name: [0, 0] for name in sorted(_pins(result, pinned))}
    examples: dict[tuple[object, ...], Example] = {}
    for query, requests in enumerate(result.requests_by_query):
        one, other = pair.current.prepared[query], pair.candidate.prepared[query]
        newly = 0
        for phase in (EARLY, LATER):
            for did, would, times in pair.outcomes_of(query, phase):
                analysis.classes[Criticality(pair.classes[query])].add(phase, did, would, times)
                if other.priority == Criticality.CRITICAL:
                    analysis.critical_there.add(phase, did, would, times)
                if would and not did:
                    newly += times
                _to_rules(rows, one, other, did, would, times)
        if one.priority != other.priority:
            analysis.reclassified += requests
        _note_met(analysis, rows, one, other, requests)
        if newly:
            _add_examples(examples, result, query)
        for name in _names(traffic.queries[query], traffic.entities[query]) & pins.keys():
            pins[name][0] += requests
            pins[name][1] += newly
    for side, attribute in (
        (pair.current, "tried_by_current"),
        (pair.candidate, "tried_by_candidate"),
    ):
        for (query, rule_id), times in sorted(side.trials.items()):
            row = rows[_name_in(side.prepared[query], rule_id)]
            setattr(row, attribute, getattr(row, attribute) + times)
    _hand_out(analysis, rows, [*examples.values()])
    analysis.rows = sorted(rows.values(), key=_telling)
    analysis.pinned = [Pinned(name, *counts) for name, counts in pins.items()]
    analysis.agreement = _agreement(pair.agreement)
    return analysis


def describe_query(query: Query) -> str:
    """Return a query in a line of bounded length."""
    if isinstance(query, CheckRequest):
        words = query.resource_path
    else:
        descriptors = [
            ", ".join(f"{key}={value}" for key, value in one.entries) for one in query.descriptors
        ]
        words = f"{query.domain}: {' | '.join(descriptors)}"
    return words if len(words) <= QUERY_CHARS_MAX else f"{words[: QUERY_CHARS_MAX - 3]}..."


# Rules.


def _note_changes(analysis: Analysis, rows: dict[RuleName, RuleRow]) -> None:
    """Every rule that only one set has, or that differs in the other."""
    result = analysis.result
    current, candidate = rules_of_changed(result.current, result.candidate)
    analysis.changes = {ADDED: [], REMOVED: [], CHANGED: []}
    for name in sorted({*current, *candidate}):
        before, after = current.get(name), candidate.get(name)
        change = _change(before, after)
        if change == SAME:
            continue
        analysis.changes[change].append(name)
        row = rows[name] = RuleRow(*name)
        row.change = change
        row.current = "" if before is None else before.text
        row.candidate = "" if after is None else after.text


def _change(before: RuleText | None, after: RuleText | None) -> str:
    if before is None:
        return ADDED
    if after is None:
        return REMOVED
    return SAME if before.identity == after.identity else CHANGED


def _note_met(
    analysis: Analysis,
    rows: dict[RuleName, RuleRow],
    one: PreparedQuery,
    other: PreparedQuery,
    requests: int,
) -> None:
    """The rules that a query met, in either rule set."""
    by_name: dict[RuleName, AnyRule] = {}
    for rule in (*one.rules, *other.rules):
        by_name[name_of(rule)] = rule
        analysis.history_us = max(analysis.history_us, rule_history_us(rule))
    spans = False
    for name, rule in by_name.items():
        row = rows.get(name)
        if row is None:
            row = rows[name] = RuleRow(*name)
        if row.change == SAME:
            row.current = row.candidate = row.current or rule_text(rule).text
        row.counts_together = name in analysis.result.spanning
        row.requests += requests
        spans = spans or row.counts_together
    if spans:
        analysis.undercounted += requests


def _to_rules(
    rows: dict[RuleName, RuleRow],
    one: PreparedQuery,
    other: PreparedQuery,
    did: int,
    would: int,
    times: int,
) -> None:
    """Count a refusal for the rule that the response names."""
    if did:
        row = _row(rows, one.rules[did - 1])
        row.refused_by_current += times
        if not would:
            row.newly_admitted += times
    if would:
        row = _row(rows, other.rules[would - 1])
        row.refused_by_candidate += times
        if not did:
            row.newly_refused += times


def _row(rows: dict[RuleName, RuleRow], rule: AnyRule) -> RuleRow:
    name = name_of(rule)
    row = rows.get(name)
    if row is None:
        row = rows[name] = RuleRow(*name)
    return row


def _name_in(prepared: PreparedQuery, rule_id: str) -> RuleName:
    return next(name_of(rule) for rule in prepared.rules if rule.rule_id == rule_id)


def _telling(row: RuleRow) -> tuple[int, int, int, str, str]:
    differs = row.newly_refused + row.newly_admitted
    return (-differs, -row.refused_by_candidate, -row.requests, row.kind, row.rule_id)


# Who is newly refused.


def _add_examples(
    found: dict[tuple[object, ...], Example], result: ReplayResult, query: int
) -> None:
    """One for each rule that newly refuses this query; queries that look the same are one."""
    pair, traffic = result.pair, result.traffic
    by_rule: dict[int, int] = {}
    for phase in (EARLY, LATER):
        for did, would, times in pair.outcomes_of(query, phase):
            if would and not did:
                by_rule[would] = by_rule.get(would, 0) + times
    for would, times in sorted(by_rule.items()):
        made = Example(
            traffic.entities[query],
            describe_query(traffic.queries[query]),
            Criticality(pair.classes[query]),
            name_of(pair.candidate.prepared[query].rules[would - 1]),
            times,
            result.requests_by_query[query],
            pair.first_us[query] - result.began_us,
        )
        key = made[:4]
        before = found.get(key)
        if before is not None:
            made = made._replace(
                times=before.times + times,
                requests=before.requests + made.requests,
                first_us=min(before.first_us, made.first_us),
            )
        found[key] = made


def _hand_out(analysis: Analysis, rows: dict[RuleName, RuleRow], examples: list[Example]) -> None:
    """The heaviest examples of all, and of each rule."""
    examples.sort(key=_heaviest)
    analysis.examples = examples[:EXAMPLES_MAX]
    for example in examples:
        found = rows[example.rule].examples
        if len(found) < RULE_EXAMPLES_MAX:
            found.append(example)


def _heaviest(example: Example) -> tuple[int, int, int, str, str, RuleName]:
    return (
        int(example.criticality),
        -example.times,
        example.first_us,
        example.entity,
        example.asked,
        example.rule,
    )


def _pins(result: ReplayResult, names: Iterable[str]) -> set[str]:
    pins = {*names}
    for rules in (result.current, result.candidate):
        pins |= rules.book.resources.priorities.callers.pins
    return pins


def _names(query: Query, entity: str) -> set[str]:
    """The names by which a caller may be pinned: itself, or a value that describes it."""
    if isinstance(query, CheckRequest):
        return {query.user_id, entity}
    return {entity, *(value for one in query.descriptors for _, value in one.entries)}


def _agreement(cells: list[int]) -> Agreement:
    """Of what came later; of all, where nothing did."""
    begin = 4 * LATER if any(cells[4 * LATER :]) else 4 * EARLY
    neither, only_replayed, only_answered, both = cells[begin : begin + 4]
    return Agreement(sum(cells[begin : begin + 4]), neither, both, only_answered, only_replayed)
