"""Header-derived CRITICAL traffic at the gate, and proposals that take a confirmation."""

from __future__ import annotations

import io
import sys

import pytest

from sluicegate.contracts.checks import CheckRequest
from sluicegate.rules.resources.priorities import Priorities, PriorityNames
from sluicegate.shadow.capture.recorder import Capture
from sluicegate.shadow.capture.settings import CaptureSettings
from sluicegate.shadow.traffic import ALL
from sluicegate.testing import START_US, HandClock
from tests.apps.rulebook.stories import RULES, Book

BY_HEADER = """\
version: 1
priorities:
  header: x-kind
  names: {checkout: CRITICAL}
rules:
  - {rule_id: shop, resource_path: /shop, per: resource, limit: 9000, window: 1h}
"""
FEW = BY_HEADER.replace("9000", "901")


def capture(book: Book, requests: int) -> None:
    """As a limiter with these rules captures: the headers are those of the rules."""
    settings = CaptureSettings(folder=f"{book.folder}/capture", share=ALL)
    log = Capture(settings, clock=HandClock(START_US))
    log.follow_rules([Priorities(PriorityNames(header="x-kind"))])
    for number in range(requests):
        ask = CheckRequest(f"u{number % 7}", "/shop", headers={"x-kind": "checkout"})
        log.note_check(ask, START_US + number * 1_000, False)
    log.close()


def test_newly_refused_critical_by_header_is_rejected(book: Book) -> None:
    book.init(BY_HEADER)
    capture(book, 1_000)
    one = book.json("propose", book.file(FEW), "-m", "Fewer")
    assert (one["state"], one["judged"]) == ("rejected", "failed")
    assert one["verdict"]["newly_refused"][0] == {
        "class": "CRITICAL", "requests": 1_000, "newly_refused": 99, "share": 0.099,
    }  # fmt: skip
    assert "newly, by class: CRITICAL 99 of 1,000 (9.90%), DEGRADED 0 of 0" in book.at(
        "show", one["id"]
    )


def test_newly_refused_is_shown_when_not_judged(book: Book) -> None:
    book.init(BY_HEADER)
    capture(book, 999)
    one = book.json("propose", book.file(FEW), "-m", "Fewer")
    assert one["judged"] == "not judged"
    shown = book.at("show", one["id"])
    assert "has 999 CRITICAL requests, and 1,000 are needed" in shown
    assert "newly, by class: CRITICAL 98 of 999 (9.81%)" in shown


def test_proposal_without_capture_shows_why_unknown(book: Book) -> None:
    book.init()
    shown = book.at("show", book.propose(RULES.replace("100", "50")))
    assert "gate      not judged: nothing has been captured" in shown
    assert "newly, by class: unknown, since no traffic was replayed" in shown


@pytest.mark.parametrize("verb", ["propose", "set"])
def test_ten_fold_change_requires_confirm(book: Book, verb: str) -> None:
    book.init()
    words: tuple[object, ...] = ("propose", book.file(RULES.replace("100", "1000")), "-m", "More")
    if verb == "set":
        words = ("set", "play.limit=1000", "--reason", "More")
    assert book.refused(*map(str, words)) == (
        "sluicegate: rule 'play' changes from 100/hour to 1000/hour; add --confirm for a limit "
        "that changes 10-fold or is removed\n"
    )
    assert book.json("list") == []
    book.at(*map(str, words), "--confirm", *(["--json"] if verb == "set" else []))
    (one,) = book.json("list")
    assert "changes from 100/hour to 1000/hour" in book.at("show", one["id"])


class Terminal(io.StringIO):
    """A terminal with typed lines."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "code", "proposals"), [("y", 0, 1), ("", 2, 0), ("n", 2, 0)])
def test_confirmation_is_read_from_terminal(
    book: Book, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, proposals: int
) -> None:
    book.init()
    monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}\n"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    words = ("propose", book.file(RULES.replace("100", "1")), "-m", "Less")
    got, _, err = book.run(*words, "--rulebook", book.folder)
    assert "changes from 100/hour to 1/hour" in err
    assert "Propose this? [y/N] " in err
    assert (got, len(book.json("list"))) == (code, proposals)
