"""Mutants: mistakes that one could make in our own code, and what catches each.

A value, and no test: `test_mutants` plants each in a private copy of the package, plays the setup
beside it, and wants the named invariant broken with the mutant and held without. The setups were
found by the hunt with the mutant planted, and shrunk by it. Those in `BY_SCENARIO` break no
invariant: they lose what a scenario claims.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Mutant(NamedTuple):
    """What is planted: `old` stands once in the file, and is replaced."""

    name: str
    file: str  # in the package
    old: str
    new: str
    breaks: str  # the invariant
    stage: str  # of the setup that shows it: tests/lab/hunt/caught/NAME.json


MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant(
        "suppression from accepted traffic",
        "policies/suppression/suppress.py",
        "in(cost)\n        ):\n            self._suppressed += 1\n",
        "in(cost)\n        ):\n            self._suppressed += 1; account.total -= cost\n",
        "held",
        "cluster",
    ),
    Mutant(
        "epoch check left out",
        "kernels/lru_ttl.py",
        "if self._epochs[fingerprint(key) % len(self._epochs)] != epoch:",
        "if False:",
        "own reads",
        "reads",
    ),
    Mutant(
        "whoever leaves takes the flight with him",
        "policies/cache/coalesce.py",
        "            if not flight.waiters and not flight.finished:",
        "            if not flight.finished:",
        "nobody's end is another's",
        "reads",
    ),
    Mutant(
        "criticality not clamped",
        "policies/criticality.py",
        "        if claim < highest:",
        "        if False:",
        "clamped",
        "server",
    ),
    Mutant(
        "retry budget never charged",
        "kernels/retry_budget.py",
        "        self._sum -= RETRY_MILLI\n",
        "",
        "not over-admitted",
        "client",
    ),
    Mutant(
        "breaker counts 429 as failure",
        "policies/client/breaker.py",
        "        if result.is_failure or (result.unproven",
        "        if result.is_failure or kind is ResultKind.LIMITED or (result.unproven",
        "on evidence",
        "client",
    ),
    Mutant(
        "permit ended twice counted twice",
        "policies/stack.py",
        "            return False\n        self._ended = True\n        request = self.request\n",
        "            pass\n        self._ended = True\n        request = self.request\n",
        "ends once",
        "server",
    ),
    Mutant(
        "cost charged from what was asked, not from rows looked at",
        "policies/quota/request_units.py",
        "        rows, size_bytes = measured.rows, measured.size_bytes\n        if not is_measured",
        "        rows, size_bytes = self._rows, self._size_bytes\n        if not is_measured",
        "who reads pays",
        "server",
    ),
    Mutant(
        "what was unwound is charged",
        "policies/quota/request_units.py",
        "        due_mru = 0\n        if spent:",
        "        due_mru = self._charged_mru\n        if spent:",
        "who reads pays",
        "server",
    ),
    Mutant(
        "hot-key count not decayed",
        "policies/cache/hot_key.py",
        "            self._counters.halve()",
        "            pass",
        "let go",
        "reads",
    ),
    Mutant(
        "a bucket refilled for a whole silence, or a clock that jumped",
        "kernels/token_bucket.py",
        "    base = full_at if full_at > now else now\n    level",
        "    base = full_at\n    level",
        "not over-admitted",
        "server",
    ),
    Mutant(
        "a failed flight stays in the table",
        "policies/cache/coalesce.py",
        "            self._failed += 1\n            self._finish(flight, clock)\n",
        "            self._failed += 1\n",
        "nobody's end is another's",
        "reads",
    ),
    Mutant(
        "waiter's deadline ignored",
        "policies/cache/coalesce.py",
        "        if left_us is not None:\n            timer",
        "        if left_us == 0:\n            timer",
        "in time",
        "reads",
    ),
    Mutant(
        "unwinding left out in stack",
        "policies/stack.py",
        "        end_all(held, Outcome.IGNORE, now_us, False)\n",
        "",
        "conserved",
        "server",
    ),
    Mutant(
        "who is cancelled in line is not unwound",
        "policies/stack.py",
        "        except BaseException:\n            self._broken_off += 1\n"
        "            self._unwind(held, passed, clock.now_us())",
        "        except Exception:\n            self._broken_off += 1\n"
        "            self._unwind(held, passed, clock.now_us())",
        "conserved",
        "server",
    ),
    Mutant(
        "what is not idempotent is repeated",
        "policies/client/retry.py",
        "    if result.may_have_run and not idempotent:",
        "    if False:",
        "done once",
        "client",
    ),
    Mutant(
        "the wait before a retry may pass the deadline",
        "policies/client/retry.py",
        "now_us + wait_us + settings.slack_us >= deadline_us",
        "now_us + settings.slack_us >= deadline_us",
        "in time",
        "client",
    ),
    Mutant(
        "the loser of a hedge runs on",
        "policies/client/hedge.py",
        "                self._attempts.give_up(task)\n",
        "                pass\n",
        "conserved",
        "client",
    ),
    Mutant(
        "the node's fuse taken out",
        "policies/suppression/suppress.py",
        "        ratio = self.settings.fuse_ratio\n",
        "        ratio = 0\n",
        "not over-admitted",
        "cluster",
    ),
    Mutant(
        "doubled reports count twice",
        "policies/suppression/suppress_master.py",
        "                gained = count.total - last.total\n",
        "                gained = count.delta\n",
        "conforming",
        "cluster",
    ),
    Mutant(
        "a write does not part the stream of readers",
        "policies/cache/coalesce.py",
        "        flight = self._flights.pop(key, None)\n",
        "        flight = self._flights.get(key)\n",
        "own reads",
        "reads",
    ),
    Mutant(
        "reads are charged for the slowness of a shard",
        "kernels/cost_model.py",
        "        if us <= usual_us or self.timed == 0:",
        "        if us > 0.0:",
        "healthy shards serve",
        "dispatcher",
    ),
)


class ScenarioMutant(NamedTuple):
    """What is planted, and the scenario whose claim ours misses then."""

    name: str
    file: str  # in the package
    old: str
    new: str
    scenario: str
    case: str


BY_SCENARIO: Final[tuple[ScenarioMutant, ...]] = (
    ScenarioMutant(
        "long jobs are not cut",
        "policies/quota/request_units.py",
        "return rows_each(shape, whole_mru, fixed_mru, ru * MILLI,",
        "return rows_each(shape, whole_mru, fixed_mru, RU_MAX,",
        "noisy-neighbour",
        "10x",
    ),
)


class CoreMutant(NamedTuple):
    """What is planted, and the tests that fail then."""

    name: str
    file: str  # in the package
    old: str
    new: str
    tests: str


BY_TESTS: Final[tuple[CoreMutant, ...]] = (
    CoreMutant(
        "crowded queue serves the oldest",
        "kernels/fair_queue.py",
        "        if self.crowded and self._gained:",
        "        if False:",
        "tests/kernels/test_fair_queue.py",
    ),
    CoreMutant(
        "lower ranks are owed nothing",
        "kernels/fair_queue.py",
        "owed_us += LOW_SHARE * unit.need_us",
        "owed_us += 0.0 * unit.need_us",
        "tests/kernels/test_fair_queue.py",
    ),
    CoreMutant(
        "limit never ends",
        "kernels/found_limit.py",
        "        if self._calm >= _CALM_WINDOWS:",
        "        if self._calm < 0:",
        "tests/kernels/test_found_limit.py",
    ),
    CoreMutant(
        "length of the queue is not bounded",
        "policies/admission/gate.py",
        "self.queued >= settings.length_max or self",
        "self",
        "tests/policies/admission/test_gate.py",
    ),
)
