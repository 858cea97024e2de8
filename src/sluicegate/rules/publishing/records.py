"""Records: what the ledger keeps, as values and as JSON.

Each record is a file of its own, so that a change reads well in `git log -p`, and says its format.
A newer format is refused with what to do; unknown fields of this one are passed over, so an older
program can stand beside a newer one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.contracts.rulebook import OPEN, Author, Canary, Orders, Verdict
from sluicegate.rules.publishing.canary import CanaryState
from sluicegate.wire.json_objects import parse_object

FORMAT: Final = 1

# Why an edition was made.
FIRST: Final = "first"
PUBLISHED: Final = "publish"
TRIED: Final = "canary"
ROLLED: Final = "roll back"

BY_DESK: Final = "desk"
BY_PUSH: Final = "push"


class Step(NamedTuple):
    """Something that befell a proposal."""

    at_us: int
    by: str
    what: str
    why: str = ""


class Proposal(NamedTuple):
    """A commit that wants to go live, and everything that befell it.

    `judged_on` is the commit that was live when the verdict was found, and `candidate` what would
    have been live: the proposal's commit, merged with that.
    """

    id: str
    commit: str
    base: str
    author: Author
    proposer: str
    at_us: int
    title: str
    reason: str
    source: str = BY_DESK
    state: str = OPEN
    verdict: Verdict | None = None
    judged_on: str = ""
    candidate: str = ""
    approvals: tuple[str, ...] = ()
    override: str = ""
    authors: tuple[str, ...] = ()  # of a push: whoever has written any of its commits
    version: int = 0
    steps: tuple[Step, ...] = ()


class Version(NamedTuple):
    """An edition as it was decided on; its bytes follow from the commit. `number` is never reused.

    `before` is the commit that was live then.
    """

    number: int
    commit: str
    before: str
    proposal: str
    kind: str
    by: str
    why: str
    at_us: int


class CanaryRun(NamedTuple):
    """The canary that is under way. `troubled` are the nodes that were in trouble before it."""

    proposal: str
    by: str
    salt: str
    state: CanaryState
    troubled: tuple[str, ...] = ()


class Told(NamedTuple):
    """How much of what was decided has reached the world: the outbox is what comes after it."""

    versions: int = 0
    orders: int = 0


class Mark(NamedTuple):
    """A note for people that a commit is still to get."""

    commit: str
    text: str


class Fleet(NamedTuple):
    """What is decided for all: the last numbers given, what runs, and what is yet to be told.

    `highest` is the newest version that was ever live, or a canary that has ended.
    `seen` is the tip of the branch when it was last followed, `refused` one that was not.
    """

    live: int = 0
    versions: int = 0
    orders: int = 0
    highest: int = 0
    canary: CanaryRun | None = None
    pins: Mapping[str, int] = {}
    told: Told = Told()
    marks: tuple[Mark, ...] = ()
    seen: str = ""
    refused: str = ""


# To JSON.


def proposal_bytes(it: Proposal) -> bytes:
    """A proposal as its file."""
    verdict = None if it.verdict is None else {**it.verdict._asdict()}
    steps = [step._asdict() for step in it.steps]
    return _packed(
        {**it._asdict(), "author": it.author._asdict(), "verdict": verdict, "steps": steps}
    )


def version_bytes(it: Version) -> bytes:
    """An edition's record as its file."""
    return _packed(it._asdict())


def orders_bytes(it: Orders) -> bytes:
    """Orders as their file in the ledger; what nodes read is signed and kept elsewhere."""
    canary = None if it.canary is None else it.canary._asdict()
    return _packed({**it._asdict(), "canary": canary, "pins": dict(it.pins)})


def fleet_bytes(it: Fleet) -> bytes:
    """The fleet's record as its file."""
    run = it.canary
    canary = None if run is None else {**run._asdict(), "state": run.state._asdict()}
    return _packed(
        {
            **it._asdict(),
            "canary": canary,
            "pins": dict(it.pins),
            "told": it.told._asdict(),
            "marks": [mark._asdict() for mark in it.marks],
        }
    )


def _packed(fields: Mapping[str, Any]) -> bytes:
    text = json.dumps({"format": FORMAT, **fields}, indent=1, sort_keys=True, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"


# From JSON.


def proposal_from(name: str, data: bytes) -> Proposal:
    """The proposal that a file says."""
    at = _Fields(name, data)
    verdict, author = at.maybe("verdict"), at.within("author")
    return Proposal(
        id=at.text("id"),
        commit=at.text("commit"),
        base=at.text("base"),
        author=Author(author.text("name"), author.text("email")),
        proposer=at.text("proposer"),
        at_us=at.number("at_us"),
        title=at.text("title"),
        reason=at.text("reason"),
        source=at.text("source"),
        state=at.text("state"),
        verdict=None if verdict is None else _verdict(verdict),
        judged_on=at.text("judged_on"),
        candidate=at.text("candidate"),
        approvals=at.texts("approvals"),
        override=at.text("override"),
        authors=at.texts("authors"),
        version=at.number("version"),
        steps=tuple(
            Step(one.number("at_us"), one.text("by"), one.text("what"), one.text("why"))
            for one in at.items("steps")
        ),
    )


def version_from(name: str, data: bytes) -> Version:
    """The edition's record that a file says."""
    at = _Fields(name, data)
    return Version(
        number=at.number("number"),
        commit=at.text("commit"),
        before=at.text("before"),
        proposal=at.text("proposal"),
        kind=at.text("kind"),
        by=at.text("by"),
        why=at.text("why"),
        at_us=at.number("at_us"),
    )


def orders_from(name: str, data: bytes) -> Orders:
    """The orders that a file says."""
    at = _Fields(name, data)
    canary = at.maybe("canary")
    return Orders(
        number=at.number("number"),
        live=at.number("live"),
        canary=None
        if canary is None
        else Canary(
            canary.number("version"), canary.text("by"), canary.number("share"), canary.text("salt")
        ),
        pins=at.numbers("pins"),
        back=at.flag("back"),
        reason=at.text("reason"),
        at_us=at.number("at_us"),
    )


def fleet_from(name: str, data: bytes) -> Fleet:
    """The fleet's record that a file says."""
    at = _Fields(name, data)
    run, told = at.maybe("canary"), at.within("told")
    return Fleet(
        live=at.number("live"),
        versions=at.number("versions"),
        orders=at.number("orders"),
        highest=at.number("highest"),
        canary=None if run is None else _run(run),
        pins=at.numbers("pins"),
        told=Told(told.number("versions"), told.number("orders")),
        marks=tuple(Mark(one.text("commit"), one.text("text")) for one in at.items("marks")),
        seen=at.text("seen"),
        refused=at.text("refused"),
    )


def _run(at: _Fields) -> CanaryRun:
    state = at.within("state")
    return CanaryRun(
        proposal=at.text("proposal"),
        by=at.text("by"),
        salt=at.text("salt"),
        state=CanaryState(state.number("version"), state.number("share"), state.number("since_us")),
        troubled=at.texts("troubled"),
    )


def _verdict(at: _Fields) -> Verdict:
    confidence = at.fields.get("confidence")
    report = at.within("report")
    sure = float(confidence) if isinstance(confidence, int | float) else None
    return Verdict(at.text("result"), at.text("sentence"), sure, report.fields)


class _Fields:
    """Fields of a JSON object; what is not of its kind is `Unavailable`: the ledger is broken."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, data: bytes | Mapping[str, Any]) -> None:
        self.name = name
        if not isinstance(data, bytes):
            self.fields = data
            return
        try:
            value = parse_object(data)
        except BadValue as error:
            raise self._broken(f"it is not a JSON object: {error.remedy}") from None
        if type(value.get("format")) is not int:
            raise self._broken("it does not say its format")
        if value["format"] > FORMAT:
            raise self._broken(
                f"it has format {value['format']}, and this program reads {FORMAT}; upgrade it"
            )
        self.fields = value

    def text(self, field: str) -> str:
        value: str = self._of(field, str, "")
        return value

    def number(self, field: str) -> int:
        value: int = self._of(field, int, 0)
        return value

    def flag(self, field: str) -> bool:
        value: bool = self._of(field, bool, False)
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        said = self._of(field, list, [])
        if not all(isinstance(one, str) for one in said):
            raise self._broken(f"its {field!r} are no texts")
        return tuple(said)

    def numbers(self, field: str) -> dict[str, int]:
        said = self._of(field, dict, {})
        if not all(type(one) is int for one in said.values()):
            raise self._broken(f"its {field!r} are no numbers")
        return dict(said)

    def maybe(self, field: str) -> _Fields | None:
        return None if self.fields.get(field) is None else self.within(field)

    def within(self, field: str) -> _Fields:
        return _Fields(self.name, self._of(field, dict, {}))

    def items(self, field: str) -> list[_Fields]:
        said = self._of(field, list, [])
        if not all(isinstance(one, dict) for one in said):
            raise self._broken(f"its {field!r} are no objects")
        return [_Fields(self.name, one) for one in said]

    def _of(self, field: str, kind: type, default: Any) -> Any:
        value = self.fields.get(field, default)
        if type(value) is not kind:
            raise self._broken(f"its {field!r} is no {kind.__name__}")
        return value

    def _broken(self, why: str) -> Unavailable:
        return Unavailable("the ledger of the rules", f"{self.name}: {why}")
