"""Check: compare dead letters with what should have been decided, and report what is wrong.

The judging is `limits/completeness.py`; here logs, decisions and counters are brought to it, and
the report is printed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sluicegate.apps.dlq.letters import for_each_place, read, since_us
from sluicegate.apps.dlq.show import instant, printable
from sluicegate.contracts.errors import BadValue, Unavailable
from sluicegate.limits.completeness import (
    OVER_LIMIT,
    CompletenessCheck,
    CompletenessFinding,
    CompletenessReport,
    DecisionRecord,
    WindowTally,
    add,
)
from sluicegate.limits.dead_letter import DeadLetter, read_limit
from sluicegate.limits.late_charges import PlaceStatus, by_place, place_status

# Letters so much older than asked for still fill the limits that the first of them meets.
WARM_UP_US: Final = 3_600_000_000
LINE_BYTES_MAX: Final = 1 << 20
WINDOWS_SHOWN: Final = 20
_WORDS: Final = {
    "wrongly_admitted": "wrongly admitted",
    "wrongly_refused": "wrongly refused",
    "missing": "missing",
    "duplicated": "duplicated",
    "wrong_weight": "of wrong cost",
    "contradicted": "contradicted",
    "unknown": "unknown to the decisions",
    "over_limit": "over the limit now",
}


def check(arguments: Namespace) -> int:
    """Print what is found; 1 if anything is not as it should be."""
    from_us = since_us(arguments)
    checked = CompletenessCheck(user=arguments.user, rule=arguments.rule, since_us=from_us)
    for one in read(arguments):
        if one.at_us < from_us - WARM_UP_US:
            continue
        if isinstance(one, DeadLetter):
            checked.add_letter(one)
        else:
            checked.add_mark(one)
    if arguments.decisions:
        checked.add_decisions(_decisions(arguments.decisions))
    report = checked.report()
    if arguments.store:
        places = [
            (place, letters)
            for place, letters in by_place(checked.letters).items()
            if arguments.user in {"", place.user} and arguments.rule in {"", place.rule_id}
        ]
        for status in asyncio.run(for_each_place(arguments, places, place_status)):
            if status.over:
                add(report, _over(status))
    _print(arguments, report)
    return 0 if report.clean else 1


def _decisions(files: Sequence[str]) -> Iterator[DecisionRecord]:
    for file in files:
        try:
            with open(file, "rb") as lines:
                number = 0
                while line := lines.readline(LINE_BYTES_MAX):
                    number += 1
                    if line.strip():
                        yield _recorded(line, f"{file}:{number}")
        except OSError as error:
            raise Unavailable(f"the decisions in {file}", error.strerror or str(error)) from None


def _recorded(line: bytes, place: str) -> DecisionRecord:
    one: DecisionRecord | None
    try:
        fields: dict[str, Any] = json.loads(line)
        limit = fields.get("limit")
        one = DecisionRecord(
            fields["at_us"],
            fields["user"],
            fields["rule"],
            fields["weight"],
            fields["allowed"],
            fields.get("degraded", False),
            fields.get("id", ""),
            None if limit is None else read_limit(limit),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        one = None
    kinds = (int, str, str, int, bool, bool, str)
    if one is None or any(type(value) is not kind for value, kind in zip(one, kinds, strict=False)):
        raise BadValue(
            place,
            line.decode("utf-8", "replace").strip(),
            'write {"at_us": 1, "user": "u", "rule": "r", "weight": 1, "allowed": true}',
        )
    return one


def _over(one: PlaceStatus) -> CompletenessFinding:
    user, rule_id, limit = one.place
    why = (
        f"the store has counted {one.counted:,}, and {one.letters:,} letters hold "
        f"{one.uncounted:,} that it has not"
    )
    window_us = one.at_us - one.at_us % limit.period_us
    return CompletenessFinding(OVER_LIMIT, user, rule_id, one.at_us, window_us, one.over, "", why)


# What is told.


def _print(arguments: Namespace, report: CompletenessReport) -> None:
    if arguments.json:
        sys.stdout.write(json.dumps(as_json(report), indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(text(report)) + "\n")


def as_json(report: CompletenessReport) -> dict[str, object]:
    """Return the report for programs."""
    return {
        "clean": report.clean,
        "letters": report.letters,
        "not_judged": report.unjudged,
        "refused_by_the_store": report.plain,
        "counts": report.counts,
        "findings": [finding._asdict() for finding in report.findings],
        "findings_left_out": report.left_out,
        "windows": [
            {"user": user, "rule": rule, "window_us": window_us, **tally._asdict()}
            for (user, rule, window_us), tally in sorted(report.windows.items())
        ],
        "still_open": report.open,
    }


def text(report: CompletenessReport) -> list[str]:
    """Return the report for people."""
    lines = [f"{report.letters:,} letters, {_sum(report)}"]
    if report.unjudged:
        lines.append(f"{report.unjudged:,} not judged: a trial, or a limit that is not known")
    if report.open:
        lines.append(
            f"{len(report.open):,} processes have not said that they ended; what they wrote last "
            "may be missing"
        )
    if report.findings:
        lines += ["", *(_line(finding) for finding in report.findings)]
    if report.left_out:
        lines.append(f"and {report.left_out:,} more")
    wrong = [(key, tally) for key, tally in report.windows.items() if _is_wrong(tally)]
    if wrong:
        lines += ["", "by user, rule and window"]
        wrong.sort(key=lambda pair: -pair[1].wrongly_admitted_units - pair[1].wrongly_refused_units)
        lines += [_window(key, tally) for key, tally in wrong[:WINDOWS_SHOWN]]
        if len(wrong) > WINDOWS_SHOWN:
            lines.append(f"  and {len(wrong) - WINDOWS_SHOWN:,} more windows (--json has all)")
    return lines


def _sum(report: CompletenessReport) -> str:
    counts = [f"{count:,} {_WORDS[kind]}" for kind, count in report.counts.items() if count]
    return ", ".join(counts) or "all as it should be"


def _line(one: CompletenessFinding) -> str:
    subject = f"{printable(one.user)} by {printable(one.rule_id)}  " if one.rule_id else ""
    when = instant(one.at_us) if one.at_us else "at the beginning       "
    by = f"  by {one.units:,}" if one.units and one.kind != "missing" else ""
    place = f"  [{printable(one.id)}]" if one.id else ""
    return f"  {when}  {_WORDS[one.kind]}  {subject}{by.strip()}: {printable(one.why)}{place}"


def _is_wrong(tally: WindowTally) -> bool:
    return bool(tally.wrongly_admitted or tally.wrongly_refused)


def _window(key: tuple[str, str, int], tally: WindowTally) -> str:
    user, rule_id, window_us = key
    return (
        f"  {instant(window_us)}  {printable(user)} by {printable(rule_id)}: "
        f"{tally.letters:,} letters, {tally.admitted_units:,} units admitted, "
        f"{tally.wrongly_admitted_units:,} beyond the limit, "
        f"{tally.wrongly_refused_units:,} refused that had room"
    )
