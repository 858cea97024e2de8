# ruff: noqa: A002 - the contract calls an id an id
"""A rulebook in memory that keeps the admin's promises: versions, proposals, roles, and conflicts.

A commit is a snapshot of the files; its id is the digest of what it says and where it came from.
One lock makes every change a step, and each call is noted with what came of it.
"""

from __future__ import annotations

import difflib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, TypeVar

from sluicegate.contracts.access import Grant, Identity
from sluicegate.contracts.errors import BadValue, Conflict, Forbidden, SluicegateError, Unavailable
from sluicegate.contracts.rule_admin import LIVE_REVISION, NOBODY, Answer, Operation, RuleAdmin
from sluicegate.contracts.rulebook import (
    APPROVED,
    CANARY,
    LIVE,
    NOT_JUDGED,
    OPEN,
    PASSED,
    REJECTED,
    REPLACED,
    ROLLED_BACK,
)
from sluicegate.rules.plain_values import form_of, read_text
from sluicegate.rules.problems import Problems

T = TypeVar("T")
FIRST = "rules:\n  - rule_id: shop\n    limit: 10\n"
OPEN_STATES = (OPEN, APPROVED)


@dataclass
class Commit:
    """The files at a moment."""

    id: str
    parent: str
    files: dict[str, str]
    message: str
    by: str


@dataclass
class Proposal:
    """A commit that wants to go live."""

    id: str
    commit: str
    base: str
    proposer: str
    message: str
    reason: str
    state: str = OPEN
    verdict: dict[str, Any] | None = None
    override: str = ""
    version: int = 0
    history: list[dict[str, str]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """As the admin answers it."""
        return {**vars(self), "version": self.version or None, "history": list(self.history)}


class MemoryRuleAdmin(RuleAdmin):
    """A rule admin of dicts. `gate` finds a verdict's report, None for none."""

    def __init__(self, gate: Callable[[Mapping[str, str]], dict[str, Any] | None]) -> None:
        self._gate = gate
        self._moved = threading.Condition()
        self._commits: dict[str, Commit] = {}
        self._proposals: dict[str, Proposal] = {}
        self._versions: list[dict[str, Any]] = []
        self._nodes: dict[str, int] = {}
        self._pins: dict[str, int] = {}
        self._canary: dict[str, Any] | None = None
        self._audit: list[dict[str, Any]] = []
        self.away = ""  # why nothing answers
        self.calls = 0
        first = self._commit("", {"shop.yaml": FIRST}, "Begin", "system")
        self._live(first.id, "begin")

    # For tests.

    def reports(self, node: str, version: int) -> None:
        """A node says what it runs."""
        with self._moved:
            self._nodes[node] = version
            self._moved.notify_all()

    def call(self, operation: Operation, arguments: Mapping[str, Any], *, by: Identity) -> Any:
        return getattr(self, operation.name)(**arguments, by=by)

    # Read.

    def rules(self, at: str = LIVE_REVISION, *, by: Identity = NOBODY) -> Answer:
        with self._read(by):
            commit = self._at(at)
            files = [
                {
                    "name": name,
                    "format": form_of(name),
                    "rules": text.count("rule_id"),
                    "digest": sha256(text.encode()).hexdigest(),
                }
                for name, text in sorted(commit.files.items())
            ]
            return {
                "commit": commit.id,
                "version": self._version_of(commit.id) or None,
                "files": files,
            }

    def file(self, name: str, at: str = LIVE_REVISION, *, by: Identity = NOBODY) -> Answer:
        with self._read(by):
            commit = self._at(at)
            if name not in commit.files:
                raise BadValue("name", name, f"there is {', '.join(sorted(commit.files))}")
            return {"name": name, "commit": commit.id, "text": commit.files[name]}

    def diff(self, before: str, after: str, *, by: Identity = NOBODY) -> Answer:
        with self._read(by):
            one, other = self._at(before), self._at(after)
            files = [
                {
                    "name": name,
                    "lines": list(
                        difflib.unified_diff(
                            one.files.get(name, "").splitlines(),
                            other.files.get(name, "").splitlines(),
                            lineterm="",
                        )
                    ),
                }
                for name in sorted({*one.files, *other.files})
                if one.files.get(name) != other.files.get(name)
            ]
            return {"before": one.id, "after": other.id, "files": files, "rules": []}

    def proposals(
        self, state: str = "", *, count_max: int = 100, by: Identity = NOBODY
    ) -> Sequence[Answer]:
        with self._read(by):
            rows = [one.as_json() for one in self._proposals.values() if state in ("", one.state)]
            return rows[::-1][:count_max]

    def proposal(self, id: str, *, by: Identity = NOBODY) -> Answer:
        with self._read(by):
            return self._proposal(id).as_json()

    def report(self, id: str, *, by: Identity = NOBODY) -> Answer:
        with self._read(by):
            verdict = self._proposal(id).verdict
            if not verdict or not verdict.get("report"):
                why = verdict["sentence"] if verdict else "it has not been judged"
                raise BadValue("proposal", id, f"there is no report: {why}")
            report: Answer = verdict["report"]
            return report

    def versions(
        self, *, count_max: int = 100, before: int = 0, by: Identity = NOBODY
    ) -> Sequence[Answer]:
        with self._read(by):
            last = before - 1 if before else len(self._versions)
            return [dict(one) for one in self._versions[:last][::-1][:count_max]]

    def status(self, *, by: Identity = NOBODY) -> Answer:
        with self._read(by):
            return self._status()

    def wait(self, version: int, *, nodes: int, timeout_s: float, by: Identity = NOBODY) -> Answer:
        with self._read(by):

            def reached() -> bool:
                return sum(one == version for one in self._nodes.values()) >= nodes

            in_time = self._moved.wait_for(reached, timeout_s)
            return {**self._status(), "reached": in_time}

    def audit(self, *, count_max: int = 100, by: Identity = NOBODY) -> Sequence[Answer]:
        with self._read(by):
            return [dict(one) for one in self._audit[::-1][:count_max]]

    # Change.

    def propose(
        self,
        changes: Mapping[str, str | None],
        *,
        base: str,
        message: str,
        reason: str = "",
        confirm: bool = False,
        by: Identity = NOBODY,
    ) -> Answer:
        def work() -> Answer:
            if not message.strip():
                raise BadValue("message", message, "say what changes, in a line")
            before, live = self._at(base), self._at(LIVE_REVISION)
            moved = [name for name in changes if before.files.get(name) != live.files.get(name)]
            if moved:
                raise Conflict(", ".join(moved), f"what is live is {live.id[:12]}")
            files = _changed(live.files, changes)
            if files == live.files:
                raise BadValue("changes", sorted(changes), "give other files than are live")
            for name in changes:
                _check(name, files.get(name))
            commit = self._commit(live.id, files, message, by.name)
            made = Proposal(
                f"p{len(self._proposals) + 1:011}", commit.id, live.id, by.name, message, reason
            )
            self._proposals[made.id] = made
            self._judge(made)
            return made.as_json()

        return self._do("propose", Grant.PROPOSE, by, work, reason)

    def judge(self, id: str, *, by: Identity = NOBODY) -> Answer:
        def work() -> Answer:
            it = self._proposal(id)
            self._must_be(it, OPEN_STATES, "judged")
            self._judge(it)
            return it.as_json()

        return self._do("judge", Grant.PROPOSE, by, work)

    def approve(self, id: str, *, override: str = "", by: Identity = NOBODY) -> Answer:
        def work() -> Answer:
            it = self._proposal(id)
            self._must_be(it, OPEN_STATES, "approved")
            if it.proposer == by.name:
                raise BadValue("proposal", id, "you proposed it; have somebody else approve it")
            if it.verdict is None or it.verdict["result"] == NOT_JUDGED:
                if not override:
                    raise BadValue("proposal", id, "no gate has judged it; say why it may go live")
                it.override = override
            it.state = APPROVED
            it.history.append({"by": by.name, "what": "approved", "why": override})
            return it.as_json()

        return self._do("approve", Grant.APPROVE, by, work, override)

    def reject(self, id: str, *, reason: str, by: Identity = NOBODY) -> Answer:
        def work() -> Answer:
            it = self._proposal(id)
            self._must_be(it, OPEN_STATES, "rejected")
            it.state = REJECTED
            it.history.append({"by": by.name, "what": "rejected", "why": reason})
            return it.as_json()

        return self._do("reject", Grant.APPROVE, by, work, reason)

    def publish(self, id: str, *, by: Identity = NOBODY) -> Answer:
        def work() -> Answer:
            it = self._proposal(id)
            self._must_be(it, (APPROVED,), "published")
            if it.base != self._at(LIVE_REVISION).id:
                raise Conflict("what is live", f"it is {self._at(LIVE_REVISION).id[:12]} now")
            self._publish(it)
            return it.as_json()

        return self._do("publish", Grant.APPROVE, by, work)

    def canary(self, id: str, *, share: int, kind: str, by: Identity = NOBODY) -> Answer:
        def work() -> Answer:
            it = self._proposal(id)
            self._must_be(it, (APPROVED, CANARY), "tried")
            if share == 0:
                it.state, self._canary = ROLLED_BACK, None
            elif share == 10_000:
                self._canary = None
                self._publish(it)
            else:
                it.state = CANARY
                self._canary = {"proposal": it.id, "by": kind, "share": share}
            return it.as_json()

        return self._do("canary", Grant.APPROVE, by, work)

    def roll_back(self, to: str, *, reason: str, by: Identity = NOBODY) -> Answer:
        def work() -> Answer:
            if not reason.strip():
                raise BadValue("reason", reason, "say why")
            earlier = self._at(to)
            live = self._at(LIVE_REVISION)
            if earlier.files == live.files:
                raise BadValue("to", to, "these rules are live already")
            self._leave(ROLLED_BACK)
            commit = self._commit(live.id, earlier.files, f"Back to {to}", by.name)
            self._live(commit.id, reason)
            return self._status()

        return self._do("roll_back", Grant.APPROVE, by, work, reason)

    def pin(self, node: str, version: int, *, reason: str, by: Identity = NOBODY) -> Answer:
        def work() -> Answer:
            if version > len(self._versions):
                raise BadValue("version", version, "give the number of a release")
            self._pins.pop(node, None)
            if version:
                self._pins[node] = version
            return self._status()

        return self._do("pin", Grant.APPROVE, by, work, reason)

    def forget(self, node: str, *, reason: str, by: Identity = NOBODY) -> Answer:
        return self._do("forget", Grant.APPROVE, by, self._status, reason)

    # Inside.

    def _read(self, by: Identity) -> threading.Condition:
        self._begin(by, Grant.READ_RULES, "read")
        return self._moved

    def _begin(self, by: Identity, grant: Grant, call: str) -> None:
        with self._moved:
            self.calls += 1
            if self.away:
                raise Unavailable("the repository", self.away)
            try:
                by.require(grant)
            except Forbidden as error:
                self._note(by, call, str(error), "")
                raise

    def _do(self, call: str, grant: Grant, by: Identity, work: Callable[[], T], why: str = "") -> T:
        self._begin(by, grant, call)
        with self._moved:
            try:
                done = work()
            except SluicegateError as error:
                self._note(by, call, str(error), why)
                raise
            self._note(by, call, "", why)
            return done

    def _note(self, by: Identity, call: str, error: str, why: str) -> None:
        result = "refused" if error else "done"
        note = {"by": by.name, "call": call, "result": result, "sentence": error, "why": why}
        self._audit.append(note)

    def _commit(self, parent: str, files: Mapping[str, str], message: str, by: str) -> Commit:
        content = json.dumps([parent, dict(files), message, by, len(self._commits)])
        made = Commit(sha256(content.encode()).hexdigest()[:40], parent, dict(files), message, by)
        self._commits[made.id] = made
        return made

    def _live(self, commit: str, why: str) -> int:
        number = len(self._versions) + 1
        self._versions.append({"version": number, "commit": commit, "why": why})
        return number

    def _publish(self, it: Proposal) -> None:
        self._leave(REPLACED)
        it.version = self._live(it.commit, it.message)
        it.state = LIVE

    def _leave(self, state: str) -> None:
        for one in self._proposals.values():
            if one.state == LIVE:
                one.state = state

    def _judge(self, it: Proposal) -> None:
        report = self._gate(self._commits[it.commit].files)
        it.verdict = (
            {"result": NOT_JUDGED, "sentence": "there is no capture", "confidence": None}
            if report is None
            else {
                "result": PASSED,
                "sentence": "it refuses nobody new",
                "confidence": 0.9,
                "report": report,
            }
        )

    def _must_be(self, it: Proposal, states: Sequence[str], done: str) -> None:
        if it.state not in states:
            raise BadValue("proposal", it.id, f"it is {it.state} and cannot be {done}")

    def _proposal(self, id: str) -> Proposal:
        found = self._proposals.get(id)
        if found is None:
            raise BadValue("proposal", id, "give the id of a proposal")
        return found

    def _at(self, revision: str) -> Commit:
        if revision == LIVE_REVISION:
            return self._commits[self._versions[-1]["commit"]]
        if revision.isascii() and revision.isdigit() and 0 < int(revision) <= len(self._versions):
            return self._commits[self._versions[int(revision) - 1]["commit"]]
        if revision in self._proposals:
            return self._commits[self._proposals[revision].commit]
        near = [one for one in self._commits if len(revision) >= 6 and one.startswith(revision)]
        if len(near) != 1:
            raise BadValue("revision", revision, "give live, a version, a commit or a proposal")
        return self._commits[near[0]]

    def _version_of(self, commit: str) -> int:
        numbers = [one["version"] for one in self._versions if one["commit"] == commit]
        return numbers[-1] if numbers else 0

    def _status(self) -> dict[str, Any]:
        return {
            "live": self._versions[-1],
            "orders": {"live": len(self._versions), "pins": dict(self._pins)},
            "canary": self._canary,
            "nodes": [{"node": name, "version": at} for name, at in sorted(self._nodes.items())],
        }


def no_gate(_: Mapping[str, str]) -> dict[str, Any] | None:
    """Nothing has been captured."""
    return None


def _changed(files: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    whole: dict[str, str | None] = {**files, **changes}
    return {name: text for name, text in whole.items() if text is not None}


def _check(name: str, text: str | None) -> None:
    """A list of rules, each with an id and a limit."""
    form = form_of(name)
    if text is None:
        return
    read = read_text(text, form=form, source=name)
    problems = Problems(name, read.lines)
    rules = read.value.get("rules") if isinstance(read.value, dict) else None
    if not isinstance(rules, list):
        problems.add(("rules",), rules, "give a list of rules")
        rules = []
    for at, rule in enumerate(rules):
        limit = rule.get("limit") if isinstance(rule, dict) else None
        if not isinstance(limit, int) or limit < 0:
            problems.add(("rules", at, "limit"), limit, "give a whole number from 0")
    problems.raise_if_any()
