"""Completeness: the dead letters of an outage, compared with what should have been decided.

The limit *as it would have been counted* has seen everything that the store admitted, and every
letter that would have fitted; it is stepped by the same kernel as everywhere, letter by letter in
the order of their instants. A letter is

- wrongly admitted, if it was admitted and that limit had no room for it: by its cost less what
  was left;
- wrongly refused, if it was refused and that limit had room: by its cost;
- missing, if its process counted it and the log has it not, or a decisions log has it;
- duplicated, if its id stands there again;
- of wrong cost, if the decisions log says another, or the letter behind it in its process does,
  which tells the cost of all before it;
- contradicted, if the decisions log says the other of admitted and refused, and unknown, if it
  should tell of the letter and does not.

One wrong admission takes no room from the next letter: each is judged by what should have been.
What the store decided is a fact here and judged by nobody: what it admitted is charged.

The letters are held in memory, `letters_max` at most. Nothing here reads a log or a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, final

from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule import BURSTING, Limit
from sluicegate.contracts.store import SharedKey
from sluicegate.limits.dead_letter import BEGUN, CLOSED, DeadLetter, ProcessMark
from sluicegate.stores.memory.table import KeyTable
from sluicegate.stores.memory.tables import table_for

LETTERS_MAX_DEFAULT: Final = 2_000_000
FINDINGS_MAX_DEFAULT: Final = 100_000

WRONGLY_ADMITTED: Final = "wrongly_admitted"
WRONGLY_REFUSED: Final = "wrongly_refused"
MISSING: Final = "missing"
DUPLICATED: Final = "duplicated"
WRONG_COST: Final = "wrong_weight"
CONTRADICTED: Final = "contradicted"
UNKNOWN: Final = "unknown"
OVER_LIMIT: Final = "over_limit"
KINDS: Final = (
    WRONGLY_ADMITTED,
    WRONGLY_REFUSED,
    MISSING,
    DUPLICATED,
    WRONG_COST,
    CONTRADICTED,
    UNKNOWN,
    OVER_LIMIT,
)


_NOWHERE: Final = ("", -1)


class DecisionRecord(NamedTuple):
    """A decision as another record has it; `id` is its letter's, if it is known to have one.

    Without a `limit` of its own it is under that which the letters of its rule tell.
    """

    at_us: int
    user: str
    rule_id: str
    cost: int
    allowed: bool
    degraded: bool = False
    id: str = ""
    limit: Limit | None = None


class CompletenessFinding(NamedTuple):
    """One thing that is not as it should be; `units` says by how much.

    `id` names the letter; of several that are missing the first, and `letters` says how many.
    """

    kind: str
    user: str
    rule_id: str
    at_us: int
    window_us: int  # where the limit's window began, counted from the epoch; -1: not known
    units: int
    id: str
    why: str
    letters: int = 1


class WindowTally(NamedTuple):
    """What a user had of a rule in one window."""

    letters: int = 0
    admitted_units: int = 0
    refused_units: int = 0
    wrongly_admitted: int = 0
    wrongly_admitted_units: int = 0
    wrongly_refused: int = 0
    wrongly_refused_units: int = 0


@dataclass(slots=True)
class CompletenessReport:
    """The findings of a check."""

    findings: list[CompletenessFinding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    left_out: int = 0  # findings beyond the bound
    letters: int = 0  # different ones
    plain: int = 0  # of them, refusals by the store, which are not judged
    unjudged: int = 0  # of them, trials, and those whose limit is not known or not countable
    open: list[str] = field(default_factory=list)  # processes that have not said that they ended
    windows: dict[tuple[str, str, int], WindowTally] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether all is as it should be."""
        return not any(self.counts.values())


@final
class CompletenessCheck:
    """Is told letters, marks and decisions in any order, then reports once.

    All letters count; only what is found of `user`, `rule` and since `since_us` is reported, and
    what is missing without a name.
    """

    def __init__(
        self,
        *,
        user: str = "",
        rule: str = "",
        since_us: int = 0,
        letters_max: int = LETTERS_MAX_DEFAULT,
        findings_max: int = FINDINGS_MAX_DEFAULT,
    ) -> None:
        self._user = user
        self._rule = rule
        self._since_us = since_us
        self._letters_max = letters_max
        self._findings_max = findings_max
        self._letters: dict[tuple[str, int], DeadLetter] = {}
        self._copies: list[DeadLetter] = []
        self._began: set[str] = set()
        self._ended: dict[str, ProcessMark] = {}
        self._decisions: list[DecisionRecord] = []
        self._report = CompletenessReport()

    def add_letter(self, letter: DeadLetter) -> None:
        """Add a letter of the log."""
        place = (letter.process, letter.number)
        if place in self._letters:
            self._copies.append(letter)
        else:
            self._letters[place] = letter
        self._bound(len(self._letters) + len(self._copies))

    def add_mark(self, mark: ProcessMark) -> None:
        """Add a mark of the log."""
        if mark.kind == BEGUN:
            self._began.add(mark.process)
        elif mark.kind == CLOSED:
            self._ended[mark.process] = mark

    def add_decisions(self, records: Iterable[DecisionRecord]) -> None:
        """Add a record of all decisions, the store's and others, from first to last."""
        for one in records:
            self._decisions.append(one)
            self._bound(len(self._decisions))

    @property
    def letters(self) -> Sequence[DeadLetter]:
        """The different letters, in the order of their instants."""
        return sorted(self._letters.values(), key=_order)

    def report(self) -> CompletenessReport:
        """Return everything that is not as it should be."""
        report = self._report
        report.letters = len(self._letters)
        for copy in self._copies:
            self._add_for(DUPLICATED, copy, 0, "its id stands in the log again")
        costs = self._costs()
        lost = self._compare(costs)
        self._find_gaps({_place(one.id) for one in lost}, costs)
        self._judge(costs, lost)
        report.open = sorted({process for process, _ in self._letters} - self._ended.keys())
        report.findings.sort(key=lambda one: (one.at_us, one.id, one.kind))
        return report

    # What is there.

    def _costs(self) -> dict[tuple[str, int], int]:
        """Return what each letter really weighed, as far as the one behind it tells."""
        costs: dict[tuple[str, int], int] = {}
        for place, letter in self._letters.items():
            behind = self._cost_before(letter.process, letter.number + 1)
            costs[place] = letter.cost if behind is None else behind - letter.before
        return costs

    def _cost_before(self, process: str, number: int) -> int | None:
        letter = self._letters.get((process, number))
        if letter is not None:
            return letter.before
        end = self._ended.get(process)
        return end.before if end is not None and end.number == number else None

    def _compare(self, costs: dict[tuple[str, int], int]) -> list[DecisionRecord]:
        """Hold the letters against the decisions; those decisions whose letters are missing."""
        lost: list[DecisionRecord] = []
        unmatched = dict(self._letters)
        alike: dict[tuple[str, str, int], list[tuple[str, int]]] = {}
        for place, letter in self._letters.items():
            alike.setdefault((letter.user, letter.rule_id, letter.at_us), []).append(place)
        for one in self._decisions:
            if not one.degraded:
                continue
            place = _place(one.id)
            if not one.id:
                looks = alike.get((one.user, one.rule_id, one.at_us), [])
                place = next((found for found in looks if found in unmatched), _NOWHERE)
            found = unmatched.pop(place, None)
            if found is not None:
                costs[place] = one.cost
                self._compare_one(found, one)
            elif place not in self._letters:
                lost.append(one)
        for one in lost:
            self._add(_missing_letter(one))
        self._check_unmatched(unmatched, costs)
        return lost

    def _compare_one(self, letter: DeadLetter, one: DecisionRecord) -> None:
        if one.cost != letter.cost:
            self._add_wrong_cost(letter, one.cost, "the decisions log")
        if one.allowed != letter.allowed:
            word = "admitted" if one.allowed else "refused"
            self._add_for(CONTRADICTED, letter, one.cost, f"the decisions log says {word}")

    def _check_unmatched(
        self,
        unmatched: Mapping[tuple[str, int], DeadLetter],
        costs: Mapping[tuple[str, int], int],
    ) -> None:
        """Letters of which no decision tells."""
        first_us = min((one.at_us for one in self._decisions), default=0)
        last_us = max((one.at_us for one in self._decisions), default=-1)
        for place, letter in unmatched.items():
            if letter.cost != costs[place]:
                self._add_wrong_cost(letter, costs[place], "the letter behind it")
            if letter.degraded and first_us <= letter.at_us <= last_us:
                self._add_for(UNKNOWN, letter, letter.cost, "the decisions log has it not")

    def _find_gaps(
        self, from_decisions: set[tuple[str, int]], costs: Mapping[tuple[str, int], int]
    ) -> None:
        """Numbers that no letter has."""
        numbers: dict[str, list[int]] = {}
        for process, number in self._letters.keys() | from_decisions:
            if process:
                numbers.setdefault(process, []).append(number)
        for process in self._ended:
            numbers.setdefault(process, [])
        for process, used in numbers.items():
            used.sort()
            end = self._ended.get(process)
            if end is not None:
                used.append(end.number)
            last = -1 if process in self._began else used[0] - 1
            for number in used:
                if number > last + 1:
                    self._gap(process, last, number, costs)
                last = number

    def _gap(
        self, process: str, last: int, number: int, costs: Mapping[tuple[str, int], int]
    ) -> None:
        before = self._letters.get((process, last))
        until = self._cost_before(process, number)
        since = 0 if last < 0 else None
        if before is not None:
            since = before.before + costs[process, last]
        units = -1 if since is None or until is None else until - since
        at_us = 0 if before is None else before.at_us
        weigh = "" if units < 0 else f", {units:,} units in all"
        count = number - last - 1
        why = f"{count:,} of process {process} from number {last + 1} on{weigh}"
        place = f"{process}:{last + 1}"
        self._add(CompletenessFinding(MISSING, "", "", at_us, -1, max(units, 0), place, why, count))

    # What should have been decided.

    def _judge(self, costs: Mapping[tuple[str, int], int], lost: Sequence[DecisionRecord]) -> None:
        limits = _limits(self._letters.values())
        keys = {(one.user, one.rule_id) for one in self._letters.values()}
        keys.update((one.user, one.rule_id) for one in lost)
        tables: dict[Limit, KeyTable[Any] | None] = {}
        facts = [
            one
            for one in self._decisions
            if one.allowed and not one.degraded and (one.user, one.rule_id) in keys
        ]
        letters = [*self._letters.values(), *(_letter_for(one, limits) for one in lost)]
        in_order: list[tuple[tuple[int, str, int], DeadLetter | DecisionRecord]] = [
            *((_order(letter), letter) for letter in letters),
            *(((one.at_us, "", -1), one) for one in facts),
        ]
        in_order.sort(key=lambda pair: pair[0])
        for _, one in in_order:
            if isinstance(one, DeadLetter):
                cost = costs.get((one.process, one.number), one.cost)
                self._judge_letter(one, cost, tables, len(keys))
                continue
            limit = (
                one.limit or limits.get((one.user, one.rule_id)) or limits.get(("", one.rule_id))
            )
            table = None if limit is None else _table(tables, limit, len(keys))
            if table is not None:
                table.settle(_key(one), one.cost, one.at_us, one.at_us)

    def _judge_letter(
        self, letter: DeadLetter, cost: int, tables: dict[Limit, KeyTable[Any] | None], keys: int
    ) -> None:
        if not letter.degraded:
            self._report.plain += 1
            return
        table = None
        if letter.limit is not None and not letter.shadow:
            table = _table(tables, letter.limit, keys)
        if table is None or letter.limit is None:
            self._report.unjudged += 1
            return
        key = _key(letter)
        ideal = table.take(key, cost, letter.at_us)
        if letter.harsh and not ideal.allowed:
            table.settle(key, cost, letter.at_us, letter.at_us)
        excess, spared = 0, 0
        if letter.allowed and not ideal.allowed:
            excess = cost - max(ideal.remaining, 0)
            why = f"{max(ideal.remaining, 0):,} of {cost:,} were left of {_words(letter.limit)}"
            self._add_for(WRONGLY_ADMITTED, letter, excess, why)
        elif ideal.allowed and not letter.allowed:
            spared = cost
            left = ideal.remaining + cost
            why = f"{left:,} were left of {_words(letter.limit)}"
            self._add_for(WRONGLY_REFUSED, letter, cost, why)
        self._tally(letter, cost, excess, spared)

    def _tally(self, letter: DeadLetter, cost: int, excess: int, spared: int) -> None:
        if not self._in_scope(letter.user, letter.rule_id, letter.at_us):
            return
        place = (letter.user, letter.rule_id, _window_us(letter))
        had = self._report.windows.get(place, WindowTally())
        self._report.windows[place] = WindowTally(
            had.letters + 1,
            had.admitted_units + (cost if letter.allowed else 0),
            had.refused_units + (0 if letter.allowed else cost),
            had.wrongly_admitted + (1 if excess else 0),
            had.wrongly_admitted_units + excess,
            had.wrongly_refused + (1 if spared else 0),
            had.wrongly_refused_units + spared,
        )

    # Inside.

    def _add_wrong_cost(self, letter: DeadLetter, cost: int, by: str) -> None:
        why = f"it says {letter.cost:,}, {by} says {cost:,}"
        self._add_for(WRONG_COST, letter, cost - letter.cost, why)

    def _add_for(self, kind: str, letter: DeadLetter, units: int, why: str) -> None:
        self._add(
            CompletenessFinding(
                kind,
                letter.user,
                letter.rule_id,
                letter.at_us,
                _window_us(letter),
                units,
                letter.id,
                why,
            )
        )

    def _add(self, finding: CompletenessFinding) -> None:
        nameless = not finding.rule_id and finding.at_us >= self._since_us
        if nameless or self._in_scope(finding.user, finding.rule_id, finding.at_us):
            add(self._report, finding, self._findings_max)

    def _in_scope(self, user: str, rule_id: str, at_us: int) -> bool:
        return at_us >= self._since_us and self._user in {"", user} and self._rule in {"", rule_id}

    def _bound(self, count: int) -> None:
        if count > self._letters_max:
            raise BadValue(
                "letters_max", self._letters_max, "there are more; say --since, --user or --rule"
            )


def add(
    report: CompletenessReport,
    finding: CompletenessFinding,
    findings_max: int = FINDINGS_MAX_DEFAULT,
) -> None:
    """Count a finding, and keep it if there is room."""
    report.counts[finding.kind] += finding.letters
    if len(report.findings) < findings_max:
        report.findings.append(finding)
    else:
        report.left_out += 1


def capacity(limit: Limit) -> int:
    """Return what a limit that nothing was taken from has."""
    return limit.burst if limit.algorithm in BURSTING else limit.count


def units_held(limit: Limit, letters: Iterable[DeadLetter], now_us: int) -> int:
    """What a limit that has seen only these letters still holds against their user at `now_us`."""
    table = table_for("held", limit, 8)
    for letter in letters:
        if letter.allowed and not letter.shadow:
            table.settle("", letter.cost, letter.at_us, letter.at_us)
    return capacity(limit) - table.peek("", 0, now_us).remaining


def _order(letter: DeadLetter) -> tuple[int, str, int]:
    return letter.at_us, letter.process, letter.number


def _place(letter_id: str) -> tuple[str, int]:
    process, _, number = letter_id.rpartition(":")
    return process, int(number) if number.isdecimal() else -1


def _key(one: DeadLetter | DecisionRecord) -> SharedKey:
    return SharedKey(one.user, one.rule_id)


def _limits(letters: Iterable[DeadLetter]) -> dict[tuple[str, str], Limit]:
    """The limit of each user under a rule, and of a rule (user ""), as its last letter says."""
    latest: dict[tuple[str, str], Limit] = {}
    for letter in sorted(letters, key=_order):
        if letter.limit is not None:
            latest[letter.user, letter.rule_id] = latest["", letter.rule_id] = letter.limit
    return latest


def _letter_for(one: DecisionRecord, limits: Mapping[tuple[str, str], Limit]) -> DeadLetter:
    """Return a letter that is lost, as the decision tells it."""
    limit = one.limit or limits.get((one.user, one.rule_id)) or limits.get(("", one.rule_id))
    process, number = _place(one.id)
    return DeadLetter(
        one.user,
        one.rule_id,
        one.cost,
        one.at_us,
        allowed=one.allowed,
        limit=limit,
        process=process,
        number=number,
    )


def _missing_letter(one: DecisionRecord) -> CompletenessFinding:
    window_us = -1 if one.limit is None else one.at_us - one.at_us % one.limit.period_us
    why = "the decisions log has it"
    return CompletenessFinding(
        MISSING, one.user, one.rule_id, one.at_us, window_us, one.cost, one.id, why
    )


def _table(
    tables: dict[Limit, KeyTable[Any] | None], limit: Limit, keys: int
) -> KeyTable[Any] | None:
    if limit not in tables:
        try:
            tables[limit] = table_for("ideal", limit, keys + 1)
        except BadValue:  # a log of a million entries, say: no store would count it
            tables[limit] = None
    return tables[limit]


def _window_us(letter: DeadLetter) -> int:
    limit = letter.limit
    return -1 if limit is None else letter.at_us - letter.at_us % limit.period_us


def _words(limit: Limit) -> str:
    return f"{capacity(limit):,} ({limit.count:,} in {limit.period_us / 1e6:,g} s)"
