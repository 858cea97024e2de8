"""The report: the same bytes for the same replay, and names that stay names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.command_line.text import clip, duration, percent
from sluicegate.contracts.checks import CheckRequest
from sluicegate.contracts.criticality import Criticality
from sluicegate.contracts.errors import BadValue
from sluicegate.shadow.gate import JudgeSettings, ShadowJudge
from sluicegate.shadow.report.page import page_of
from sluicegate.shadow.report.report import as_json, digest_of, read_report
from sluicegate.shadow.report.text import text_of
from sluicegate.shadow.traffic import CapturedTraffic
from tests.shadow.replay.captures import captured, check, critical, limit, native, vips
from tests.shadow.synthetic import synthetic_traffic

HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e\ud800\"'&\n" + "x" * 500
TAGS_WITHOUT_END = {"meta", "rect", "circle", "line", "polyline"}

PROGRAM = """
from tests.shadow.replay.test_report import made_report
from sluicegate.shadow.report.report import as_json
from sluicegate.shadow.report.page import page_of
from sluicegate.shadow.report.text import text_of
report = made_report()
print(as_json(report) + text_of(report) + page_of(report), end="")
"""


def made_report() -> dict[str, Any]:
    made = synthetic_traffic(5_000, seed=7, entities=50, mesh=1_000, refused=300, per_s=300)
    return report_on(made, book(9), book(5), pinned=["user-1", "user-2", "nobody"])


def book(count: int) -> dict[str, bytes]:
    return native(
        limit("play", count, resource_path="/api/v1/playback"),
        limit("search", 9 * count, resource_path="/api/v1/search", per="resource"),
        limit("try", count, resource_path="/api/v1/logs", mode="shadow"),
        callers=vips(*[f"user-{n}" for n in range(50)]),
    )


def report_on(
    made: CapturedTraffic, current: dict[str, bytes], candidate: dict[str, bytes], **more: Any
) -> dict[str, Any]:
    verdict = ShadowJudge(lambda: made, JudgeSettings(**more)).judge(current, candidate)
    return dict(verdict.report)


def hostile_report() -> dict[str, Any]:
    """Everything that comes with the traffic is a trap."""
    name = HOSTILE[:300]
    queries = [CheckRequest(name, f"/{HOSTILE}", priority=Criticality.CRITICAL) for _ in range(2)]
    return report_on(
        captured([(0, queries[0]), (0, queries[0])]),
        {},
        native(limit("one", 1), callers=vips("ann")),
        pinned=[name],
    )


@pytest.mark.parametrize("seed", ["1", "2"])
def test_the_same_capture_makes_the_same_reports_in_every_process(seed: str) -> None:
    report = made_report()
    here = as_json(report) + text_of(report) + page_of(report)
    path = os.pathsep.join(filter(None, sys.path))
    there = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        check=True,
        capture_output=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
    ).stdout.decode()
    assert there == here


def test_no_path_and_no_place_of_this_machine_is_in_a_report() -> None:
    report = made_report()
    whole = as_json(report) + text_of(report) + page_of(report)
    assert "/tmp" not in whole
    assert os.getcwd() not in whole


def test_the_json_is_plain_and_comes_back() -> None:
    text = as_json(hostile_report())
    assert text.isascii()
    assert list(read_report(text))[:3] == ["format", "version", "verdict"]
    assert json.loads(text)["examples"][0]["newly_refused"] == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "another"}'])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="give the JSON of a shadow report"):
        read_report(text)


def test_a_newer_report_is_refused_and_a_field_more_is_not() -> None:
    report = made_report()
    assert read_report(json.dumps({**report, "more": 1}))["more"] == 1
    with pytest.raises(BadValue, match="upgrade"):
        read_report(json.dumps({**report, "version": 2}))


def test_the_digest_tells_captures_apart() -> None:
    ann, bob = critical("ann"), critical("bob")
    several = [
        captured([(0, ann), (1, bob)]),
        captured([(0, bob), (1, ann)]),
        captured([(0, ann), (2, bob)]),
        captured([(0, ann), (1, bob)], lost=1),
        captured([(0, ann), (1, bob)], share=5_000),
        captured([(0, ann), (1, bob)], outcomes=[0, 1]),
        captured([(0, check("ann")), (1, bob)]),
    ]
    assert len({digest_of(made) for made in several}) == len(several)
    assert digest_of(several[0]) == digest_of(captured([(0, ann), (1, bob)]))


def test_a_report_is_small_enough_to_be_kept_whatever_names_there_are() -> None:
    users = [check("\U0001f600" * 900 + str(n)) for n in range(100)]
    paths = ["/" + "\U0001f600" * 250 + str(n) for n in range(120)]
    made = captured([(0, query) for query in users for _ in range(2)])
    several = [limit(f"rule-{n}", 1, resource_path=path) for n, path in enumerate(paths)]
    pins = [query.user_id for query in users]
    report = report_on(made, {}, native(limit("one", 1), *several), pinned=pins)
    assert len(json.dumps(report)) <= 200 << 10
    assert report["pinned"]["hurt"] == 100
    assert report["changes"]["added"]["count"] == 121
    assert report["rules_left_out"] == 121 - len(report["rules"])
    assert len(report["rules"]) in {10, 50}
    assert len(as_json(made_report())) < 200 << 10


@pytest.mark.parametrize("report", [{}, {"cut": "It was <too> long."}])
def test_a_verdict_without_figures_is_shown_too(report: dict[str, Any]) -> None:
    assert text_of(report).endswith(".\n")
    assert "<too>" not in page_of(report)
    parsed(page_of(report))


def test_the_report_tells_classes_and_times_apart() -> None:
    ann, bulk = critical("ann"), check("eve", claim=Criticality.BULK)
    made = captured([(0, ann), (0, ann), (0, ann), (59, bulk), (59, bulk)])
    one = native(limit("play", 2), callers=vips("ann"))
    report = report_on(made, one, native(limit("play", 1), callers=vips("ann")))
    classes = report["timeline"]["classes"]
    assert {name: sum(columns["requests"]) for name, columns in classes.items()} == {
        "CRITICAL": 3,
        "DEGRADED": 0,
        "BEST_EFFORT": 0,
        "BULK": 2,
    }
    first = {name: column[0] for name, column in classes["CRITICAL"].items()}
    assert first == {
        "requests": 3,
        "refused_by_current": 1,
        "refused_by_candidate": 2,
        "newly_refused": 1,
    }
    assert classes["BULK"]["newly_refused"][59] == 1


# The text.


def test_the_text_is_plain_unless_colours_are_wanted() -> None:
    report = made_report()
    plain = text_of(report)
    assert "\x1b" not in plain
    coloured = text_of(report, colours=True)
    assert coloured != plain
    assert re.sub(r"\x1b\[[0-9;]+m", "", coloured) == plain


def test_the_text_shows_the_verdict_and_its_figures() -> None:
    ann = critical("ann")
    made = captured([(0.001 * at, ann) for at in range(1_000)])
    text = text_of(
        report_on(
            made, native(callers=vips("ann")), native(limit("play", 940), callers=vips("ann"))
        )
    )
    assert text.startswith("FAILED\n")
    assert "newly refuses 60 of 1,000 CRITICAL requests, 6.00%" in text
    assert re.search(r"CRITICAL +1,000 +0 +60 +0 +60 +6\.00% +0\n", text)
    assert re.search(r"ann +/play +CRITICAL +play +60 +1,000 +0\.94 s\n", text)
    assert re.search(r"play +added +1,000 +0 +60 +60 +0\n", text)


def test_a_terminal_is_shown_names_and_obeys_none() -> None:
    text = text_of(hostile_report())
    assert text.replace("\n", "").isprintable()
    assert "\\x1b[2J" in text


@given(st.text(max_size=200))
def test_whatever_is_shown_is_printable_and_bounded(text: str) -> None:
    assert clip(text).isprintable()
    assert len(clip(text)) <= 10 * 120
    assert len(clip("x" * len(text) * 9)) <= 120
    if text.isprintable() and len(text) <= 120:
        assert clip(text) == text


def test_figures_are_short_and_never_round_something_to_nothing() -> None:
    assert [percent(one) for one in (0.0, 0.00001, 0.05, None)] == ["0.00%", "<0.01%", "5.00%", "-"]
    assert [duration(one) for one in (500_000, 100_000_000, 7_200_000_000)] == [
        "0.5 s",
        "100 s",
        "2 h",
    ]


# The page.


class Page(HTMLParser):
    """Notes every tag and attribute, and whether tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.values: list[str] = []
        self.open: list[str] = []
        self.style = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.values += [value or "" for _, value in attrs]
        if tag not in TAGS_WITHOUT_END:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in TAGS_WITHOUT_END:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in TAGS_WITHOUT_END:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.style += data


def parsed(page: str) -> Page:
    document = Page()
    document.feed(page)
    document.close()
    assert document.open == []
    return document


@pytest.mark.parametrize("report", [made_report(), hostile_report()], ids=["made", "hostile"])
def test_the_page_is_whole_needs_nothing_and_runs_nothing(report: dict[str, Any]) -> None:
    page = page_of(report)
    document = parsed(page)
    assert document.tags.isdisjoint({"script", "link", "img", "iframe", "object", "a", "form"})
    assert not any(name.startswith("on") or name == "style" for name in document.attributes)
    assert "://" not in page
    assert "url(" not in page
    assert "@import" not in page


def test_the_policy_of_the_page_allows_its_own_style_and_nothing_else() -> None:
    document = parsed(page_of(made_report()))
    digest = b64encode(sha256(document.style.encode()).digest()).decode()
    (policy,) = [value for value in document.values if value.startswith("default-src")]
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def test_a_hostile_name_is_shown_on_the_page_as_text() -> None:
    page = page_of(hostile_report())
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[2J\\u202e\\ud800&quot;&#x27;&amp;" in page
    assert page.encode().decode() == page
