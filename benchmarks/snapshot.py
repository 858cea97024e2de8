"""A million native rules as a snapshot: what they weigh, and what taking up a change costs.

    python -m benchmarks.snapshot [--rules 1000000]

The rules have random UUIDs for names, the paths of `benchmarks/resource_rules.py`, and limits,
windows, classes and types of clients that vary; all follows from a seed. They are compiled in one
process; another loads the files, to weigh them as they were before there were snapshots; a third
unpacks the snapshot, looks random rules up, and takes up changes of a hundred rules while it
decides: what a decision waits then is compared with what one waits just before.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

from benchmarks.null_gate import NullGate
from benchmarks.resource_rules import FORMS, RULES, RULES_A_FILE, resident
from benchmarks.rounds import Bars, build_of, interleaved, print_results
from sluicegate import Limiter
from sluicegate.contracts.checks import CheckRequest
from sluicegate.contracts.criticality import Criticality
from sluicegate.rules.resources import packed
from sluicegate.rules.resources.service import Checker
from sluicegate.rules.service_rule_set import ServiceRuleSet
from sluicegate.rules.snapshot.book import book_of
from sluicegate.rules.snapshot.codec import pack, unpack
from sluicegate.rules.snapshot.delta import apply_delta, make_delta
from sluicegate.rules.snapshot.snapshot import RulesSnapshot, compile_snapshot
from sluicegate.system import now_us

SEED = 6
ASKS = 50_000
CHANGES = 100
ROUNDS = 5
LIMITS = 500
WINDOWS_S = (1, 10, 60, 3_600)
CLIENT_TYPES = ("MOBILE", "PARTNER", "TV", "WEB")
AROUND_S = 0.1
CALLERS = b"{version: 1, callers: {names: {ann: CRITICAL}}}"

WIRE_BYTES_MAX = 64
FIND_NS_MAX = 1_000
READY_S_MAX = 10
DELTA_BYTES_MAX = 20_000
APPLY_MS_MAX = 100
P99_TIMES_MAX = 1.5

Ask = tuple[bytes, str, Criticality]
Fields = dict[str, object]


def rule(draws: random.Random, limits: list[int], number: int) -> Fields:
    """One rule."""
    fields: Fields = {
        "rule_id": str(uuid.UUID(int=draws.getrandbits(128), version=4)),
        "resource_path": FORMS[number % len(FORMS)][0].format(n=number),
        "limit": draws.choice(limits),
        "window_seconds": draws.choice(WINDOWS_S),
    }
    if draws.random() < 0.3:
        fields["priority_bucket"] = draws.choice([one.name for one in Criticality])
    if draws.random() < 0.2:
        fields["client_type"] = draws.choice(CLIENT_TYPES)
    if draws.random() < 0.5:
        fields["burst_capacity"] = draws.choice((1.2, 1.5))
    return fields


def rules_of(count: int) -> Iterator[Fields]:
    """So many rules, always the same."""
    draws = random.Random(SEED)
    limits = [draws.randrange(1, 10 ** draws.randrange(2, 7)) for _ in range(LIMITS)]
    for number in range(count):
        yield rule(draws, limits, number)


def changed(files: dict[str, list[Fields]], rules: int) -> None:
    """Change a hundred: a third each another limit, one more, one less."""
    draws = random.Random(SEED + 1)
    for turn in range(CHANGES):
        said = files[draws.choice(sorted(files))]
        place = draws.randrange(len(said))
        if turn % 3 == 0:
            said[place]["limit"] = draws.randrange(1, 1_000_000)
        elif turn % 3 == 1:
            said.append(rule(draws, [77], rules + turn))
        else:
            del said[place]


def asks_of(rules: int) -> list[Ask]:
    """Asks that fall under random rules."""
    draws = random.Random(SEED + 2)
    wanted = {draws.randrange(rules) for _ in range(ASKS)}
    asks: list[Ask] = []
    for number, fields in enumerate(rules_of(rules)):
        if number in wanted:
            path = FORMS[number % len(FORMS)][1].format(n=number).encode()
            bucket = Criticality[str(fields.get("priority_bucket", "DEGRADED"))]
            asks.append((path, str(fields.get("client_type", "")), bucket))
    draws.shuffle(asks)
    return asks


# Making, in a process of its own.


def make(folder: Path, rules: int) -> None:
    """Write the files, the snapshot, and the deltas there and back."""
    said = [*rules_of(rules)]
    files = {f"{n:08}.yaml": said[n : n + RULES_A_FILE] for n in range(0, rules, RULES_A_FILE)}
    data = {name: text_of(part) for name, part in files.items()} | {"callers.yaml": CALLERS}
    for name, text in data.items():
        (folder / "rules" / name).write_bytes(text)
    began = time.perf_counter()
    before = compile_snapshot(data)
    compiled_s = time.perf_counter() - began
    began = time.perf_counter()
    packed_bytes = pack(before)
    print(f"\n{rules:,} rules, {build_of(packed.__file__)}")
    print(f"  compile           {compiled_s:9.1f} s, pack {time.perf_counter() - began:.1f} s")
    changed(files, rules)
    data |= {name: text_of(part) for name, part in files.items()}
    after = compile_snapshot(data, before=before)
    (folder / "snapshot").write_bytes(packed_bytes)
    (folder / "there").write_bytes(make_delta(before, after))
    (folder / "back").write_bytes(make_delta(after, before))


def text_of(rules: list[Fields]) -> bytes:
    """A file of these rules."""
    return json.dumps({"version": 1, "rules": rules}).encode()


def load(folder: Path, rules: int) -> None:
    """Weigh the rules as they are read from files."""
    gc.collect()
    before = resident()
    book = ServiceRuleSet.load([folder / "rules"])
    gc.collect()
    weight = (resident() - before) / rules
    print(f"  weight from files {weight:9.0f} bytes a rule ({len(book):,} rules)")


# Measuring, in another.


def measure(folder: Path, rules: int) -> None:
    """Unpack, look up, and take up changes."""
    bars = Bars()
    data = (folder / "snapshot").read_bytes()
    gc.collect()
    before = resident()
    began = time.perf_counter()
    snapshot = unpack(data)
    unpacked_s = time.perf_counter() - began
    book = book_of(snapshot, version="1")
    ready_s = time.perf_counter() - began
    gc.collect()
    print(f"  weight unpacked   {(resident() - before) / rules:9.0f} bytes a rule")
    print(f"  unpack            {unpacked_s:9.2f} s, and the book {ready_s - unpacked_s:.2f} s")
    wire = len(data) / rules
    bars.check(wire <= WIRE_BYTES_MAX, f"{wire:.1f} of {WIRE_BYTES_MAX} bytes a rule on the wire")
    bars.check(ready_s <= READY_S_MAX, f"ready in {ready_s:.2f} of {READY_S_MAX} s")
    asks = asks_of(rules)
    find_ns = looked_up(book, asks)
    if build_of(packed.__file__) == "compiled":
        bars.check(find_ns <= FIND_NS_MAX, f"a look-up takes {find_ns:.0f} of {FIND_NS_MAX:,} ns")
    there, back = (folder / "there").read_bytes(), (folder / "back").read_bytes()
    size = max(len(there), len(back))
    claim = f"a delta of {CHANGES} changes has {size:,} of {DELTA_BYTES_MAX:,} bytes"
    bars.check(size <= DELTA_BYTES_MAX, claim)
    del book
    swapping(bars, snapshot, asks, there, back, data)
    bars.exit()


def looked_up(book: ServiceRuleSet, asks: list[Ask]) -> float:
    """The time of a look-up; that of making the path anew is taken off."""
    find = book.resources.find

    def finding() -> int:
        for path, client_type, priority in asks:
            if not find(path.decode(), client_type, priority):
                raise AssertionError(path)
        return len(asks)

    def making() -> int:
        for path, _client_type, _priority in asks:
            if not path.decode():
                raise AssertionError(path)
        return len(asks)

    results = interleaved({"making a path": making, "and looking it up": finding})
    print_results("A look-up of random rules", results, "making a path")
    pairs = zip(results["and looking it up"].ns, results["making a path"].ns, strict=True)
    return statistics.median(both - alone for both, alone in pairs)


class Deciding:
    """Decides on and on, notes how long each took, and takes up new rules between two."""

    def __init__(self, asks: list[Ask]) -> None:
        self.limiter = Limiter()
        gate = NullGate()
        self.checker = Checker(self.limiter, gate, gate)
        self.asks = asks
        self.at = 0

    def put(self, book: ServiceRuleSet, before: ServiceRuleSet | None) -> None:
        """Put rules in force, as the service does."""
        self.limiter.replace_rules(book.rules_beside(before))
        self.checker.book = book.resources

    def run(self, until: Callable[[int], bool]) -> list[int]:
        """Decide until that is so of the time; nanoseconds of each decision."""
        took: list[int] = []
        check, asks, at = self.checker.check, self.asks, self.at
        now = time.perf_counter_ns()
        while not until(now):
            path, client_type, priority = asks[at]
            at = (at + 1) % len(asks)
            ask = CheckRequest(
                "ann", path.decode(), priority=priority, headers={"x-client-type": client_type}
            )
            began = time.perf_counter_ns()
            check(ask, now_us())
            now = time.perf_counter_ns()
            took.append(now - began)
        self.at = at
        return took


def for_s(seconds: float) -> Callable[[int], bool]:
    """Until so much time is over."""
    end = time.perf_counter_ns() + round(seconds * 1e9)
    return lambda now: now >= end


def p99(took: list[int]) -> float:
    """What all but one in a hundred were faster than, in nanoseconds."""
    return sorted(took)[len(took) * 99 // 100]


class Beside:
    """Makes a book in another thread."""

    def __init__(self, work: Callable[[], tuple[RulesSnapshot, ServiceRuleSet]]) -> None:
        self.made: tuple[RulesSnapshot, ServiceRuleSet] | None = None
        self.took_s = 0.0
        self._work = work
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        began = time.perf_counter()
        made = self._work()
        self.took_s = time.perf_counter() - began
        self.made = made

    def taken(self) -> tuple[RulesSnapshot, ServiceRuleSet]:
        """What was made."""
        self.thread.join()
        if self.made is None:
            raise AssertionError("nothing was made")
        return self.made


def swapping(
    bars: Bars, snapshot: RulesSnapshot, asks: list[Ask], there: bytes, back: bytes, data: bytes
) -> None:
    """Take up changes, and then a whole snapshot, while decisions go on."""
    deciding = Deciding(asks)
    book = book_of(snapshot, version="0")
    deciding.put(book, None)
    deciding.run(for_s(1.0))  # warm
    ratios: list[float] = []
    applied_s: list[float] = []
    for turn in range(2 * ROUNDS):
        delta = back if turn % 2 else there

        def work(
            snapshot: RulesSnapshot = snapshot, book: ServiceRuleSet = book, delta: bytes = delta
        ) -> tuple[RulesSnapshot, ServiceRuleSet]:
            after = apply_delta(snapshot, delta)
            return after, book_of(after, version=after.content, before=book)

        steady, during, beside = taking_up(deciding, book, work)
        snapshot, book = beside.taken()
        applied_s.append(beside.took_s)
        ratios.append(p99(during) / p99(steady))
        print(
            f"  delta {turn}: {beside.took_s * 1e3:.1f} ms beside decisions; "
            f"p99 {p99(steady) / 1e3:.1f} us, then {p99(during) / 1e3:.1f} us "
            f"of {len(during):,}; longest {max(during) / 1e6:.1f} ms"
        )
    ms, times = statistics.median(applied_s) * 1e3, statistics.median(ratios)
    bars.check(
        ms <= APPLY_MS_MAX, f"{CHANGES} changes are taken up in {ms:.1f} of {APPLY_MS_MAX} ms"
    )
    bars.check(times <= P99_TIMES_MAX, f"p99 of decisions meanwhile is {times:.2f} x of steady")

    def whole() -> tuple[RulesSnapshot, ServiceRuleSet]:
        after = unpack(data)
        return after, book_of(after, version="whole")

    old = [snapshot, book]
    del snapshot, book
    steady, during, beside = taking_up(deciding, cast("ServiceRuleSet", old.pop()), whole, old)
    print(
        f"  a whole snapshot: {beside.took_s:.2f} s beside decisions; "
        f"p99 {p99(steady) / 1e3:.1f} us, then {p99(during) / 1e3:.1f} us; "
        f"longest {max(during) / 1e6:.1f} ms, its swap and the end of the old included"
    )


def taking_up(
    deciding: Deciding,
    book: ServiceRuleSet,
    work: Callable[[], tuple[RulesSnapshot, ServiceRuleSet]],
    old: list[object] | None = None,
) -> tuple[list[int], list[int], Beside]:
    """Decisions before, and then while new rules are made and put in force."""
    steady = deciding.run(for_s(AROUND_S))
    beside = Beside(work)
    beside.thread.start()
    during = deciding.run(lambda _now: beside.made is not None)
    began = time.perf_counter_ns()
    deciding.put(beside.taken()[1], book)
    if old is not None:
        old.clear()
    del book
    during.append(time.perf_counter_ns() - began)  # who asks now waits for that too
    during += deciding.run(for_s(AROUND_S / 10))
    return steady, during, beside


PARTS = {"make": make, "load": load, "measure": measure}


def main() -> None:
    """Make the rules, weigh them and measure, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, default=RULES)
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        PARTS[options.part](options.folder, options.rules)
        return
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "rules").mkdir()
        for part in PARTS:
            command = [sys.executable, "-m", "benchmarks.snapshot", "--folder", name]
            told = subprocess.run(
                [*command, "--part", part, "--rules", str(options.rules)], check=False
            )
            if told.returncode:
                sys.exit(told.returncode)


if __name__ == "__main__":
    main()
