"""Revisions: what people call a state of the rules, and which commit that is."""

from __future__ import annotations

from typing import NamedTuple, final

from sluicegate.contracts.errors import BadValue, Conflict, Unavailable
from sluicegate.contracts.rule_desk import ID_CHARS_MIN, LIVE_REVISION
from sluicegate.contracts.rulebook import APPROVED, OPEN
from sluicegate.rules.publishing.ledger import Ledger, State
from sluicegate.rules.publishing.records import Proposal
from sluicegate.rules.repository.repository import Repository

_REMEDY = "give live, the number of a version, or the id of a commit or a proposal"


class Revision(NamedTuple):
    """A commit, the version it has (0 for none), and how it was called."""

    commit: str
    version: int
    called: str


@final
class Revisions:
    """Finds revisions by their names."""

    __slots__ = ("_ledger", "_repository")

    def __init__(self, repository: Repository, ledger: Ledger) -> None:
        self._repository = repository
        self._ledger = ledger

    def find(self, said: str) -> Revision:
        """The revision that is called so; `BadValue` if none is, or several are."""
        state = self._ledger.state()
        if said == LIVE_REVISION:
            if state.live is None:
                raise Unavailable("the rulebook", "nothing is live yet; begin with a first version")
            return Revision(state.live.commit, state.live.number, "what is live")
        if said.isascii() and said.isdecimal() and int(said) in state.versions:
            number = int(said)
            return Revision(state.versions[number].commit, number, f"version {number}")
        if said.startswith("p"):
            return self._of_proposal(self.proposal(said), state)
        if len(said) < ID_CHARS_MIN:
            raise BadValue("revision", said, _REMEDY)
        commit = self._repository.find(said)
        return Revision(commit, _version_of(state, commit), f"commit {commit[:12]}")

    def proposal(self, said: str) -> Proposal:
        """The proposal whose id is this, or begins so; or that of a commit, by its id."""
        proposals = self._ledger.state().proposals
        exact = proposals.get(said)
        if exact is not None:
            return exact
        found = [it for it in proposals.values() if said and said in _beginning(it, len(said))]
        if len(said) < ID_CHARS_MIN or len(found) != 1:
            remedy = "give more of it" if len(found) > 1 else "give an id as `proposals` lists them"
            raise BadValue("proposal", said, remedy)
        return found[0]

    def _of_proposal(self, it: Proposal, state: State) -> Revision:
        called = f"proposal {it.id}"
        version = state.versions.get(it.version)
        if version is not None:
            return Revision(version.commit, version.number, called)
        if it.state in (OPEN, APPROVED) and state.live is not None:
            # What would be live: its own files lack what has gone live since.
            try:
                merged = self._repository.rebased(it.commit, state.live.commit)
            except (BadValue, Conflict):
                return Revision(it.commit, 0, called)
            return Revision(merged.id, 0, called)
        return Revision(it.commit, 0, called)


def _beginning(it: Proposal, chars: int) -> tuple[str, str]:
    return it.id[:chars], it.commit[:chars]


def _version_of(state: State, commit: str) -> int:
    numbers = [one.number for one in state.versions.values() if one.commit == commit]
    return max(numbers, default=0)
