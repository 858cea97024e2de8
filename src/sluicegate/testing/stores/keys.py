"""Keys: whatever text a caller's name is, it is a key of its own and nobody else's."""

# ruff: noqa: D102 - a test's name is its sentence

from __future__ import annotations

from typing import Final

from sluicegate.contracts.rule import Algorithm, Limit
from sluicegate.contracts.store import Charge, Key, SharedKey
from sluicegate.testing.stores.cases import DAILY, DAY_US, each_algorithm
from sluicegate.testing.stores.stage import StoreStage, StoreTrial

KEY_CHARS_MAX: Final = 4_096

ODD_KEYS: Final = (
    "",
    " ",
    "  ",
    "a",
    "A",
    " a",
    "a ",
    "a\n",
    "a\r\nb",
    "a\x00",
    "a\x00b",
    "{a}",
    "{}",
    "}",
    "{",
    "a}b",
    "a{b",
    "}{",
    "a%7Db",
    "%",
    "%25",
    "%7D",
    "a:b",
    "a/b",
    "a'b",
    'a"b',
    "a\\b",
    "*",
    "a*",
    "?",
    "[a]",
    "é",
    "e\u0301",
    "\u00a0",
    "日本",
    "🚰",
    "\U0010ffff",
    "a\ud800",  # halves of characters
    "a\udfff",
    "a\\xed\\xa0\\x80",
    "None",
    "0",
    "00",
    "-1",
    "x" * KEY_CHARS_MAX,
    "x" * (KEY_CHARS_MAX - 1) + "y",
)


class Keys(StoreStage):
    """Stories of keys, and of the names of limits."""

    @each_algorithm
    def test_every_key_has_a_limit_of_its_own(self, limit: Limit) -> None:
        async def story(trial: StoreTrial) -> None:
            for key in ODD_KEYS:
                ruling = await trial.take(trial.charge(limit, key, cost=4))
                assert ruling.allowed, f"{key[:20]!r} pays for another key"
            for key in ODD_KEYS:
                ruling = await trial.take(trial.charge(limit, key))
                assert ruling.allowed, f"{key[:20]!r} pays for another key"
                assert ruling.decisions[0].remaining == 0, f"{key[:20]!r} was forgotten"
            for key in ODD_KEYS:
                await trial.reset(trial.charge(limit, key))
                ruling = await trial.look(trial.charge(limit, key))
                assert ruling.decisions[0].remaining == 4, f"{key[:20]!r} was not reset"

        self.tell(story)

    def test_odd_keys_stand_in_groups(self) -> None:
        async def story(trial: StoreTrial) -> None:
            for key in ODD_KEYS:
                group = [trial.charge(limit, key, 3) for limit in DAILY]
                assert (await trial.take(*group)).allowed
                assert not (await trial.take(*group)).allowed

        self.tell(story)

    def test_where_the_name_of_a_limit_ends_and_a_key_begins_is_not_guessed(self) -> None:
        async def story(trial: StoreTrial) -> None:
            limit = Limit(1, period_us=DAY_US, algorithm=Algorithm.FIXED_WINDOW)
            run = trial.charge(limit).rule_id
            names: tuple[tuple[str, Key], ...] = (
                (f"{run}a", "b:c"),
                (f"{run}a:b", "c"),
                (f"{run}a:b:c", ""),
                (f"{run}a b", "c"),
                (f"{run}a", "b c"),
                (f"{run}a}}:b", "c"),
                (f"{run}a; b/{{c}}", "d"),
                (f"{run}é", "d"),
                (f"{run}~", SharedKey("d", f"{run}one rule")),
                (f"{run}~", SharedKey("d", f"{run}another")),
                (f"{run}~", SharedKey(f"d\x1f{run}one rule", f"{run}another")),
            )
            for rule_id, key in names:
                ruling = await trial.take(Charge(rule_id, limit, key))
                assert ruling.allowed, f"{key!r} of {rule_id!r} pays for another"

        self.tell(story)
