"""`sluicegate quota replay`: try quotas on what callers really asked of `sluicegate kv`."""

from __future__ import annotations

import difflib
import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Final

from sluicegate.apps.quota.names import display_name
from sluicegate.apps.quota.replay import Busiest, CallerReplay, asks_of, replay_caller, ru_text
from sluicegate.apps.quota.series import RU_MAX
from sluicegate.command_line.text import harmless
from sluicegate.contracts.errors import BadValue
from sluicegate.rules.plain_values import read_bytes
from sluicegate.rules.quota_edit import quotas_in
from sluicegate.rules.service_rule_set import FILE_BYTES_MAX
from sluicegate.service.settings import whole
from sluicegate.shadow.capture.reader import CaptureRead, read_capture
from sluicegate.wire.timestamps import utc_text

REPLAY: Final = """\
examples:
  sluicegate kv --capture /var/lib/sluicegate-asked                 captures
  sluicegate quota replay /var/lib/sluicegate-asked --rules proposed.yaml
  sluicegate quota replay asked --rules callers.yaml --quota shop=400 --quota batch=50
  sluicegate quota replay asked --quota shop=400 --json

A proposed quota is that of --quota, else of the rules file, else --quota-ru. --epoch-ms is that of
the dispatcher. "now" is what was refused when it was captured.

exit code: 0 played, whatever would be refused; 1 it could not; 2 asked wrongly
"""
REQUESTS_MAX: Final = 50_000_000
QUERIES_MAX: Final = 1_000_000


def add_replay_arguments(parser: ArgumentParser) -> None:
    """The flags."""
    add = parser.add_argument
    add("captures", nargs="+", metavar="CAPTURE", help="a folder of kv --capture, or a file of it")
    add("--quota", action="append", default=[], metavar="CALLER=RU",
        help="a proposed quota, in RU/s; may be repeated")  # fmt: skip
    add("--rules", default="", metavar="FILE", help="a rules file with proposed quotas")
    add("--quota-ru", default="10000", metavar="RU",
        help="the quota of callers without one, in RU/s (default 10000)")  # fmt: skip
    add("--epoch-ms", default="1000", metavar="MS", help="an epoch (default 1000)")
    add("--requests-max", default="5000000", metavar="N",
        help="charges and corrections to read, which bounds memory (default 5000000)")  # fmt: skip
    add("--json", action="store_true", help="write JSON")


def run_replay(arguments: Namespace) -> int:
    """Read, play, show."""
    default = int(whole(1, RU_MAX)(arguments.quota_ru, "--quota-ru"))
    epoch_us = int(whole(1, 86_400_000)(arguments.epoch_ms, "--epoch-ms")) * 1_000
    requests_max = int(whole(1, REQUESTS_MAX)(arguments.requests_max, "--requests-max"))
    named = _named(arguments)
    quotas = _in_rules(arguments) | named
    read = read_capture(arguments.captures, requests_max=requests_max, queries_max=QUERIES_MAX)
    asks = asks_of(read.traffic)
    if not asks:
        remedy = "nothing in it was asked of sluicegate kv; give the folder of its --capture"
        raise BadValue("CAPTURE", " ".join(arguments.captures), remedy)
    for name in named.keys() - asks.keys():
        near = difflib.get_close_matches(name, asks, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise BadValue("--quota", name, f"name a caller that is captured{hint}")
    callers = [
        replay_caller(name, asks[name], quotas.get(name, default), epoch_us)
        for name in sorted(asks)
    ]
    if arguments.json:
        sys.stdout.write(json.dumps(_as_json(callers, read), indent=2) + "\n")
    else:
        _show(callers, read)
    return 0


def _in_rules(arguments: Namespace) -> dict[str, int]:
    if not arguments.rules:
        return {}
    try:
        text = read_bytes(arguments.rules, FILE_BYTES_MAX).decode("utf-8")
    except UnicodeDecodeError:
        remedy = "it is not UTF-8; save it as UTF-8"
        raise BadValue("--rules", arguments.rules, remedy) from None
    return dict(quotas_in(text, arguments.rules))


def _named(arguments: Namespace) -> dict[str, int]:
    quotas: dict[str, int] = {}
    for text in arguments.quota:
        name, equals, ru = text.rpartition("=")
        if not equals or not name:
            raise BadValue("--quota", text, "write CALLER=RU: shop=400")
        quotas[name] = int(whole(1, RU_MAX)(ru, f"--quota {name}"))
    return quotas


def _as_json(callers: Sequence[CallerReplay], read: CaptureRead) -> dict[str, object]:
    return {
        "lost": read.traffic.lost,
        "damage": list(read.damage),
        "callers": [
            {
                **one._asdict(),
                "proposed": one.proposed._asdict(),
                "busiest_second": one.busiest_second._asdict(),
                "busiest_minute": one.busiest_minute._asdict(),
            }
            for one in callers
        ],
    }


def _show(callers: Sequence[CallerReplay], read: CaptureRead) -> None:
    lines: list[str] = []
    for one in callers:
        played = one.proposed
        smallest = "none" if one.smallest_quota is None else f"{one.smallest_quota:,} RU/s"
        lines += [
            display_name(one.caller),
            f"  asked             {one.asked:,} times, {ru_text(one.asked_mru)}",
            f"  now               {one.admitted:,} admitted, {one.refused:,} refused",
            f"  at {one.quota:,} RU/s: {played.admitted:,} admitted, {played.refused:,} refused",
            f"  would be refused  {ru_text(played.refused_mru)}",
            f"  busiest second    {_busiest(one.busiest_second)}",
            f"  busiest minute    {_busiest(one.busiest_minute)}",
            f"  refuses nothing   from {smallest} on",
        ]
        lines += [f"    {utc_text(at_us)}  {count:,} refused" for at_us, count in played.seconds]
    if read.traffic.lost:
        lines.append(f"{read.traffic.lost:,} entries are missing: refusals may be too few")
    lines += read.damage
    sys.stdout.write("".join(harmless(line) + "\n" for line in lines))


def _busiest(one: Busiest) -> str:
    return f"{utc_text(one.at_us)}  {ru_text(one.mru)}"
