"""Report, as text: what a terminal shows. Colours only where they are wanted; plain otherwise.

It is made from the report as JSON holds it, so one that was kept can be shown again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sluicegate.command_line.text import (
    clip,
    clip_words,
    count,
    counted,
    duration,
    percent,
    table,
)
from sluicegate.contracts.rulebook import FAILED, PASSED
from sluicegate.shadow.report.report import describe_basis, has_figures, why_no_figures

RULES_SHOWN: Final = 20
EXAMPLES_SHOWN: Final = 10
_WIDE: Final = 44  # of a column of names
_RED: Final = "31"
_GREEN: Final = "32"
_YELLOW: Final = "33"
_BOLD: Final = "1"
_FAINT: Final = "2"


def text_of(report: Mapping[str, Any], *, colours: bool = False) -> str:
    """The report for a terminal; `colours` where that is one."""
    if not has_figures(report):
        return f"{clip_words(why_no_figures(report))}\n"
    return "\n".join(_lines(report, _Pen(colours))) + "\n"


class _Pen:
    """Writes in colours, or does not."""

    def __init__(self, colours: bool) -> None:
        self._colours = colours

    def write(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colours else text

    def title(self, text: str) -> str:
        return self.write(_BOLD, text)


def _lines(report: Mapping[str, Any], pen: _Pen) -> Iterator[str]:
    verdict, capture = report["verdict"], report["capture"]
    code = {PASSED: _GREEN, FAILED: _RED}.get(verdict["result"], _YELLOW)
    yield pen.write(f"{_BOLD};{code}", clip(verdict["result"]).upper())
    yield clip_words(verdict["sentence"])
    yield pen.write(
        _FAINT,
        f"{counted(capture['requests'], 'request')} of "
        f"{counted(capture['entities'], 'entity', 'entities')} in "
        f"{duration(capture['span_us'])}; capture {capture['digest'][:12]}, "
        f"current {report['rulebooks']['current']['digest'][:12]}, "
        f"candidate {report['rulebooks']['candidate']['digest'][:12]}",
    )
    yield from _classes(report["classes"], pen)
    yield from _pinned(report["pinned"], pen)
    yield from _examples(report["examples"], pen)
    yield from _rules(report, pen)
    yield from _basis(report, pen)
    yield ""
    yield pen.title("To know")
    for note in report["notes"]:
        yield f"  {clip_words(note)}"


def _classes(classes: Sequence[Mapping[str, Any]], pen: _Pen) -> Iterator[str]:
    yield ""
    yield pen.title("By class")
    head = ["", "requests", "refused", "then", "already", "newly refused", "", "newly admitted"]
    rows = [
        [
            clip(one["class"]),
            count(one["requests"]),
            count(one["refused_by_current"]),
            count(one["refused_by_candidate"]),
            count(one["refused_already"]),
            count(one["newly_refused"]),
            percent(one["newly_refused_share"]),
            count(one["newly_admitted"]),
        ]
        for one in classes
    ]
    yield from table(head, rows, left=1)


def _pinned(pinned: Mapping[str, Any], pen: _Pen) -> Iterator[str]:
    if not pinned["callers"]:
        return
    yield ""
    hurt = pinned["newly_refused"]
    count_text = f"{count(pinned['seen'])} of {count(pinned['callers'])} pinned callers were seen"
    if not hurt:
        yield f"{count_text}; none is newly refused."
        return
    yield pen.write(_RED, f"{count_text}; newly refused are:")
    rows = [
        [_shorten(one["caller"]), count(one["newly_refused"]), f"of {count(one['requests'])}"]
        for one in hurt
    ]
    yield from table([], rows, left=1)


def _examples(examples: Sequence[Mapping[str, Any]], pen: _Pen) -> Iterator[str]:
    if not examples:
        return
    yield ""
    yield pen.title("Who is newly refused")
    head = ["who", "asks for", "class", "by rule", "refused", "of", "first after"]
    rows = [
        [
            _shorten(one["entity"]),
            _shorten(one["asked"]),
            clip(one["class"]),
            _shorten(one["rule_id"]),
            count(one["newly_refused"]),
            count(one["requests"]),
            duration(one["first_after_us"]),
        ]
        for one in examples[:EXAMPLES_SHOWN]
    ]
    yield from table(head, rows, left=4)


def _rules(report: Mapping[str, Any], pen: _Pen) -> Iterator[str]:
    rules = report["rules"]
    yield ""
    yield pen.title("By rule")
    if not rules:
        yield "  No rule saw a request, and none has changed."
        return
    head = [
        "",
        "",
        "requests",
        "refused",
        "then",
        "newly refused",
        "newly admitted",
        "tried out",
    ]
    rows = [
        [
            _shorten(one["rule_id"]),
            "" if one["change"] == "same" else clip(one["change"]),
            count(one["requests"]),
            count(one["refused_by_current"]),
            count(one["refused_by_candidate"]),
            count(one["newly_refused"]),
            count(one["newly_admitted"]),
            count(one["tried_by_candidate"]) if one["tried_by_candidate"] else "",
        ]
        for one in rules[:RULES_SHOWN]
    ]
    yield from table(head, rows, left=2)
    more = len(rules) - RULES_SHOWN + report["rules_left_out"]
    if more > 0:
        yield f"  and {count(more)} more"


def _basis(report: Mapping[str, Any], pen: _Pen) -> Iterator[str]:
    yield ""
    yield pen.title("What this rests on")
    yield f"  {describe_basis(report)}"
    for part in report["confidence"]["parts"]:
        yield f"  {clip(part['name']):<12}  {clip_words(part['words'])}"


def _shorten(text: str) -> str:
    name = clip(text)
    return name if len(name) <= _WIDE else f"{name[: _WIDE - 3]}..."
