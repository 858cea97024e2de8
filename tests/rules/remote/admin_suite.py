"""What every rule admin does, told once: whoever keeps a rulebook is put through this.

An admin's own tests make a class of `DeskSuite` with a fixture `world`. What is asserted of answers
is what the contract says of all admins; how an admin says more is its own.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, Protocol

import pytest

from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.errors import BadValue, Conflict, Forbidden, SluicegateError
from sluicegate.contracts.rule_admin import RuleAdmin
from sluicegate.contracts.rulebook import (
    APPROVED,
    BY_CALLERS,
    CANARY,
    LIVE,
    OPEN,
    REJECTED,
    REPLACED,
    ROLLED_BACK,
    STATES,
)
from sluicegate.rules.problems import BadRules

READS = frozenset({Grant.READ_RULES})
# Who takes part, and what they may do.
PEOPLE = {
    "rita": READS,
    "paul": READS | {Grant.PROPOSE},
    "ada": READS | {Grant.APPROVE},
    "bob": READS | {Grant.APPROVE, Grant.PROPOSE},
    "chuck": frozenset({Grant.CHECK}),
}
FILE = "shop.yaml"


def identity(who: str) -> Identity:
    """One of the people."""
    return Identity(who, PEOPLE[who])


class World(Protocol):
    """An admin with one live version of one file, `FILE`, and nothing captured to judge by."""

    def admin(self, who: str) -> RuleAdmin:
        """The admin as this one of the people reaches it."""
        ...

    def text(self, limit: int) -> str:
        """What a file may say, with this limit; each file has rules of its own."""
        ...

    def reports(self, node: str, version: int) -> None:
        """Have a node report that it runs this version."""
        ...


class Asking:
    """An admin asked by one of the people."""

    def __init__(self, world: World, who: str) -> None:
        self.admin = world.admin(who)
        self.by = identity(who)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self.admin, name)
        return lambda *args, **kwargs: call(*args, by=self.by, **kwargs)


def names_of(rules: Any) -> list[str]:
    """The names of a revision's files."""
    files = rules["files"]
    return sorted(files if isinstance(files, dict) else (one["name"] for one in files))


class RuleAdminSuite:
    """The promises."""

    @pytest.fixture
    def ask(self, world: World) -> Callable[[str], Asking]:
        """Ask as somebody."""
        return lambda who: Asking(world, who)

    @pytest.fixture
    def propose(self, world: World, ask: Any) -> Callable[..., Any]:
        """Propose a limit, from what is live."""

        def made(limit: int, *, who: str = "paul", name: str = FILE) -> Any:
            base = ask(who).rules()["commit"]
            changes = {name: world.text(limit)}
            return ask(who).propose(
                changes, base=base, message=f"Limit {limit}", reason="So", confirm=True
            )

        return made

    @pytest.fixture
    def make_live(self, ask: Any, propose: Any) -> Callable[..., Any]:
        """Bring a limit from a proposal to life; the proposal's id."""

        def made(limit: int, **more: Any) -> Any:
            one = propose(limit, **more)["id"]
            ask("ada").approve(one, override="nothing is captured yet")
            ask("ada").publish(one)
            return one

        return made

    def test_what_is_live_is_a_commit_with_a_version_and_files(self, ask: Any) -> None:
        rules = ask("rita").rules()
        assert rules["commit"]
        assert rules["version"] == 1
        assert names_of(rules) == [FILE]
        assert ask("rita").rules("1")["commit"] == rules["commit"]
        assert ask("rita").rules(rules["commit"])["commit"] == rules["commit"]
        file = ask("rita").file(FILE)
        assert file["name"] == FILE
        assert isinstance(file["text"], str)
        with pytest.raises(BadValue):
            ask("rita").file("no/such.yaml")
        with pytest.raises(BadValue):
            ask("rita").rules("no-such-revision")

    def test_a_proposal_changes_nothing_until_it_is_published(
        self, world: World, ask: Any, propose: Any
    ) -> None:
        before = ask("rita").file(FILE)["text"]
        made = propose(77)
        assert made["state"] == OPEN
        assert made["state"] in STATES
        one = made["id"]
        assert ask("rita").file(FILE)["text"] == before
        assert ask("rita").file(FILE, one)["text"] == world.text(77)
        assert ask("rita").proposal(one)["id"] == one
        assert [it["id"] for it in ask("rita").proposals(OPEN)] == [one]
        assert ask("rita").proposals(REJECTED) == []
        assert ask("rita").diff("live", one)["files"]
        ask("ada").approve(one, override="nothing is captured yet")
        assert ask("rita").proposal(one)["state"] == APPROVED
        assert ask("rita").file(FILE)["text"] == before
        ask("ada").publish(one)
        assert ask("rita").proposal(one)["state"] == LIVE
        assert ask("rita").file(FILE)["text"] == world.text(77)
        assert ask("rita").rules()["version"] == 2

    def test_a_live_proposal_is_replaced_by_the_next(self, ask: Any, make_live: Any) -> None:
        first, second = make_live(5), make_live(6)
        assert ask("rita").proposal(first)["state"] == REPLACED
        assert ask("rita").proposal(second)["state"] == LIVE
        assert len(ask("rita").versions()) == 3
        assert len(ask("rita").versions(count_max=2)) == 2
        assert [one["version"] for one in ask("rita").versions(before=3)] == [2, 1]
        assert [it["id"] for it in ask("rita").proposals(count_max=1)] == [second]

    def test_a_file_is_added_and_taken_out(self, world: World, ask: Any, make_live: Any) -> None:
        make_live(5, name="more/extra.yaml")
        assert names_of(ask("rita").rules()) == ["more/extra.yaml", FILE]
        live = ask("bob").rules()["commit"]
        out = ask("bob").propose(
            {"more/extra.yaml": None}, base=live, message="Out again", confirm=True
        )["id"]
        ask("ada").approve(out, override="nothing is captured yet")
        ask("ada").publish(out)
        assert names_of(ask("rita").rules()) == [FILE]

    def test_rules_that_cannot_be_used_are_refused_with_every_reason(self, ask: Any) -> None:
        live = ask("paul").rules()["commit"]
        with pytest.raises(BadRules) as caught:
            ask("paul").propose({FILE: "rules: [\n"}, base=live, message="Oh")
        assert caught.value.problems
        assert all(one.remedy for one in caught.value.problems)
        with pytest.raises(BadValue):
            ask("paul").propose({}, base=live, message="Nothing")
        with pytest.raises(BadValue):
            ask("paul").propose({FILE: "rules: []\n"}, base=live, message=" ")
        assert ask("rita").proposals() == []

    def test_two_at_once_never_lose_a_change(self, world: World, ask: Any, make_live: Any) -> None:
        base = ask("paul").rules()["commit"]
        make_live(5)
        with pytest.raises(Conflict):
            ask("paul").propose({FILE: world.text(6)}, base=base, message="Late")
        assert ask("rita").file(FILE)["text"] == world.text(5)

    def test_of_many_who_propose_and_publish_at_once_no_change_is_lost(
        self, world: World, ask: Any
    ) -> None:
        done: list[int] = []
        together = threading.Barrier(4)

        def change(number: int) -> None:
            together.wait(10)
            for _ in range(20):
                try:
                    base = ask("paul").rules()["commit"]
                    changes = {f"part-{number}.yaml": world.text(number)}
                    one = ask("paul").propose(changes, base=base, message=f"Part {number}")["id"]
                    ask("ada").approve(one, override="nothing is captured yet")
                    ask("ada").publish(one)
                except SluicegateError:
                    continue
                done.append(number)
                return

        threads = [threading.Thread(target=change, args=(at,)) for at in range(1, 5)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(60)
        assert sorted(done) == [1, 2, 3, 4]
        for number in done:
            assert ask("rita").file(f"part-{number}.yaml")["text"] == world.text(number)
        assert ask("rita").rules()["version"] == 5

    def test_who_proposes_does_not_approve_and_what_was_not_judged_takes_a_reason(
        self, ask: Any, propose: Any
    ) -> None:
        own = propose(5, who="bob")["id"]
        with pytest.raises(SluicegateError):
            ask("bob").approve(own, override="I know")
        assert ask("rita").proposal(own)["state"] == OPEN
        with pytest.raises(BadValue):
            ask("ada").approve(own)
        with pytest.raises(BadValue):
            ask("ada").publish(own)
        assert ask("bob").judge(own)["id"] == own

    def test_what_was_rejected_stays_so(self, ask: Any, propose: Any) -> None:
        one = propose(5)["id"]
        ask("ada").reject(one, reason="Too little")
        assert ask("rita").proposal(one)["state"] == REJECTED
        with pytest.raises(BadValue):
            ask("ada").approve(one, override="after all")
        with pytest.raises(BadValue):
            ask("ada").publish(one)

    def test_a_grant_that_lacks_is_named_and_nothing_happens(
        self, world: World, ask: Any, propose: Any
    ) -> None:
        one = propose(5)["id"]
        asks: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
            ("chuck", "read-rules", lambda it: it.rules()),
            ("chuck", "read-rules", lambda it: it.status()),
            ("rita", "propose", lambda it: it.propose({FILE: "x"}, base="live", message="m")),
            ("ada", "propose", lambda it: it.judge(one)),
            ("paul", "approve", lambda it: it.approve(one, override="o")),
            ("paul", "approve", lambda it: it.reject(one, reason="r")),
            ("paul", "approve", lambda it: it.publish(one)),
            ("paul", "approve", lambda it: it.canary(one, share=1, kind=BY_CALLERS)),
            ("paul", "approve", lambda it: it.roll_back("1", reason="r")),
            ("paul", "approve", lambda it: it.pin("n", 1, reason="r")),
        )
        for who, grant, call in asks:
            with pytest.raises(Forbidden) as caught:
                call(ask(who))
            assert (caught.value.who, caught.value.grant) == (who, grant)
        assert ask("rita").proposal(one)["state"] == OPEN
        assert ask("rita").rules()["version"] == 1

    def test_a_canary_grows_and_becomes_live(self, ask: Any, propose: Any) -> None:
        one = propose(5)["id"]
        ask("ada").approve(one, override="nothing is captured yet")
        ask("ada").canary(one, share=100, kind=BY_CALLERS)
        assert ask("rita").proposal(one)["state"] == CANARY
        assert ask("rita").rules()["version"] == 1
        ask("ada").canary(one, share=10_000, kind=BY_CALLERS)
        assert ask("rita").proposal(one)["state"] == LIVE

    def test_a_canary_is_taken_back(self, ask: Any, propose: Any) -> None:
        before = ask("rita").file(FILE)["text"]
        one = propose(5)["id"]
        ask("ada").approve(one, override="nothing is captured yet")
        ask("ada").canary(one, share=100, kind=BY_CALLERS)
        ask("ada").canary(one, share=0, kind=BY_CALLERS)
        assert ask("rita").proposal(one)["state"] == ROLLED_BACK
        assert ask("rita").file(FILE)["text"] == before

    def test_going_back_makes_a_new_version_of_old_rules(self, ask: Any, make_live: Any) -> None:
        before = ask("rita").file(FILE)["text"]
        one = make_live(5)
        ask("ada").roll_back("1", reason="It refused Ann")
        assert ask("rita").file(FILE)["text"] == before
        assert ask("rita").rules()["version"] == 3
        assert ask("rita").proposal(one)["state"] == ROLLED_BACK
        with pytest.raises(BadValue):
            ask("ada").roll_back("no-such-revision", reason="why")
        with pytest.raises(BadValue):
            ask("ada").roll_back("1", reason=" ")

    def test_a_node_is_pinned_and_let_go(self, ask: Any) -> None:
        pinned = ask("ada").pin("node-7", 1, reason="to look at it")
        assert pinned["orders"]["pins"] == {"node-7": 1}
        free = ask("ada").pin("node-7", 0, reason="seen")
        assert free["orders"]["pins"] == {}
        with pytest.raises(BadValue):
            ask("ada").pin("node-7", 99, reason="what for")

    def test_who_waits_is_told_once_so_many_nodes_run_it(self, world: World, ask: Any) -> None:
        assert not ask("rita").wait(1, nodes=1, timeout_s=0.01)["reached"]
        world.reports("n-1", 1)
        assert ask("rita").wait(1, nodes=1, timeout_s=10)["reached"]
        later = threading.Timer(0.05, world.reports, ("n-2", 1))
        later.start()
        assert ask("rita").wait(1, nodes=2, timeout_s=10)["reached"]
        later.join()
        assert not ask("rita").wait(1, nodes=3, timeout_s=0.01)["reached"]
        assert "n-2" in json.dumps(ask("rita").status())

    def test_each_change_and_each_refusal_is_noted(self, ask: Any, make_live: Any) -> None:
        make_live(5)
        with pytest.raises(Forbidden):
            ask("rita").roll_back("1", reason="I may not")
        noted = ask("rita").audit()
        assert len(noted) >= 4
        assert "rita" in json.dumps(noted[0])
        assert len(ask("rita").audit(count_max=2)) == 2
        text = json.dumps(noted)
        for who in ("paul", "ada"):
            assert who in text

    def test_all_answers_are_what_json_can_hold(self, ask: Any, make_live: Any) -> None:
        one = make_live(5)
        rita = ask("rita")
        for answer in (
            rita.rules(),
            rita.file(FILE),
            rita.diff("1", "live"),
            *rita.proposals(),
            rita.proposal(one),
            *rita.versions(),
            rita.status(),
            *rita.audit(),
        ):
            assert json.loads(json.dumps(answer)) == answer
