"""`sluicegate limits glass`: break, mend, list and audit from the command line.

It opens the source, does one thing, prints it for people or programs, and closes it. What is
allowed and how it is kept is not decided here; see `limits/glass/sources.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from sluicegate.command_line.verbs import add_verb
from sluicegate.contracts.errors import BadValue
from sluicegate.limits.glass.break_glass import ALL, FOR_S_MAX, RATE_FOR_S_MAX, Opening
from sluicegate.limits.glass.page import BREAK, END, MEND, AuditEntry, UnreadableLine
from sluicegate.limits.glass.sources import PREFIX_DEFAULT, GlassSource, open_source
from sluicegate.stores.urls import redacted
from sluicegate.wire.timestamps import utc_text

STORE_VARIABLE: Final = "SLUICEGATE_STORE_URL"
LAST_DEFAULT: Final = 20

EXAMPLES: Final = """\
examples:
  sluicegate limits glass break --store redis://cache:6379 --rule login --for 15m \\
      --by ann --why "the rule is wrong"
  sluicegate limits glass break --store redis://cache:6379 --key tenant:42 --for 1h \\
      --by ann --why "their launch"
  sluicegate limits glass break --store redis://cache:6379 --all --for 5m \\
      --by ann --why "incident 1204"
  sluicegate limits glass break --store redis://cache:6379 --key tenant:42 --rate 1000/minute \\
      --for 30d --by ann --why "their trial of the large plan"
  sluicegate limits glass list --store redis://cache:6379
  sluicegate limits glass mend 3f9a01bc --store redis://cache:6379 --by ann
  sluicegate limits glass mend --all --store redis://cache:6379 --by ann
  sluicegate limits glass audit --store redis://cache:6379 --last 50

The store is said with --store or in SLUICEGATE_STORE_URL: redis://host:6379/0, redis+cluster://...,
redis+sentinel://..., or file:/path/glass.json. Who can write there can break the glass.
"""

T = TypeVar("T")

_SPAN: Final = re.compile(r"(?P<count>\d+(?:\.\d+)?)(?P<unit>s|m|min|h|d)", re.ASCII)
_UNIT_S: Final = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}


def add_arguments(parser: ArgumentParser) -> None:
    """The four commands and their flags."""
    parser.description = "Stop the enforcement of limits everywhere, for a while, on the record."
    parser.epilog = EXAMPLES
    parser.formatter_class = RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="glass_command", metavar="COMMAND", required=True)
    for name, purpose, add in (
        ("break", "stop the enforcement of a rule, for a key, or of everything", _add_break),
        ("mend", "end an opening before its time", _add_mend),
        ("list", "what is open now", None),
        ("audit", "who opened and mended what, when and why, and what ended by itself", _add_audit),
    ):
        command = add_verb(commands, name, purpose, EXAMPLES)
        if add is not None:
            add(command)
        command.add_argument("--store", metavar="URL", help=f"default: ${STORE_VARIABLE}")
        command.add_argument(
            "--prefix",
            default=PREFIX_DEFAULT,
            help="of the limiter's keys in a Redis; default: %(default)s",
        )
        command.add_argument("--format", choices=("text", "json"), default="text")


def _add_break(parser: ArgumentParser) -> None:
    parser.add_argument("--rule", metavar="NAME", help="only this rule")
    parser.add_argument("--key", help="only this key, as it is passed to the limiter")
    parser.add_argument("--all", action="store_true", help="every rule for every key")
    parser.add_argument("--rate", help="hold --key to this rate instead, such as 1000/minute")
    parser.add_argument(
        "--for",
        dest="span",
        metavar="SPAN",
        required=True,
        help="90s, 15m or 2h; at most 24h, with --rate 366d",
    )
    parser.add_argument("--by", metavar="WHO", required=True, help="who is responsible")
    parser.add_argument("--why", metavar="TEXT", required=True, help="the reason, for the audit")


def _add_mend(parser: ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", help="the id of one opening, as `list` shows it")
    parser.add_argument(
        "--all", action="store_true", help="every opening, and entries that cannot be read"
    )
    parser.add_argument("--by", metavar="WHO", required=True, help="who is responsible")
    parser.add_argument("--why", metavar="TEXT", default="", help="the reason, for the audit")


def _add_audit(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--last", type=int, default=LAST_DEFAULT, metavar="N", help="lines; default: %(default)s"
    )


def run(arguments: Namespace) -> int:
    """Do it; the exit code. What is asked wrongly or cannot be done is raised."""
    return _COMMANDS[arguments.glass_command](arguments)


def _break(arguments: Namespace) -> int:
    rule, key = _target(arguments)
    for_s = span_s(arguments.span, RATE_FOR_S_MAX if arguments.rate else FOR_S_MAX)
    opening = _with_source(
        arguments,
        lambda source: source.break_(
            rule=rule,
            key=key,
            for_s=for_s,
            by=arguments.by,
            why=arguments.why,
            rate=arguments.rate or "",
        ),
    )
    store = f" --store {_without_password(arguments.store)}" if arguments.store else ""
    _print(
        arguments,
        {"opened": opening._asdict()},
        [
            f"glass broken: {_sentence(opening)}",
            "It is in force wherever it is followed within about a second. To end it sooner:",
            f"sluicegate limits glass mend {opening.id}{store} --by WHO",
        ],
    )
    return 0


def _without_password(url: str) -> str:
    return redacted(url) if "@" in url else url


def _mend(arguments: Namespace) -> int:
    if bool(arguments.id) == arguments.all:
        raise BadValue("mend", arguments.id, "give one id, or --all")
    mended = _with_source(
        arguments,
        lambda source: source.mend(arguments.id, by=arguments.by, why=arguments.why),
    )
    _print(
        arguments,
        {"mended": [one._asdict() for one in mended]},
        [_mended(one) for one in mended] or ["nothing was open"],
    )
    return 0


def _list(arguments: Namespace) -> int:
    view = _with_source(arguments, lambda source: source.look())
    standing = [one for one in view.openings if view.now_us < one.until_us]
    lines = [
        f"{_sentence(one)}; {span_text((one.until_us - view.now_us) / 1e6)} left"
        for one in standing
    ]
    if view.damage:
        lines = [f"nothing is open, for what is there cannot be understood: {view.damage}"]
    _print(
        arguments,
        {
            "now_us": view.now_us,
            "open": [one._asdict() for one in standing],
            "damage": view.damage,
        },
        lines or ["nothing is open"],
    )
    return 1 if view.damage else 0


def _audit(arguments: Namespace) -> int:
    entries = _with_source(arguments, lambda source: source.audit(arguments.last))
    _print(
        arguments,
        {"audit": [_as_json(one) for one in entries]},
        [_line(one) for one in entries] or ["nothing has been opened"],
    )
    return 0


_COMMANDS: Final[dict[str, Callable[[Namespace], int]]] = {
    "break": _break,
    "mend": _mend,
    "list": _list,
    "audit": _audit,
}


# What was asked.


def _target(arguments: Namespace) -> tuple[str, str]:
    rule, key = arguments.rule, arguments.key
    narrow = rule is not None or key is not None
    if narrow and arguments.all:
        raise BadValue("--all", "with --rule or --key", "leave one or the other out")
    if not narrow and not arguments.all:
        raise BadValue(
            "break", "everything", "give --rule, --key or both, or say --all to stop all limits"
        )
    for flag, text in (("--rule", rule), ("--key", key)):
        if text in {"", ALL}:
            raise BadValue(flag, text, "name one, or leave the flag out for all of them")
    return ALL if rule is None else rule, ALL if key is None else key


def span_s(text: str, most_s: float = FOR_S_MAX) -> float:
    """Return the seconds that `90s`, `15m`, `2h` or `30d` are."""
    found = _SPAN.fullmatch(text.strip().lower())
    seconds = 0.0 if found is None else float(found["count"]) * _UNIT_S[found["unit"]]
    if not 1 <= seconds <= most_s:
        most = f"{most_s / 3600:g}h" if most_s == FOR_S_MAX else f"{most_s / 86_400:g}d"
        raise BadValue("--for", text, f"give a time from 1s to {most}, as 90s, 15m or 2h")
    return seconds


def _with_source(arguments: Namespace, operate: Callable[[GlassSource], Awaitable[T]]) -> T:
    url = arguments.store or os.environ.get(STORE_VARIABLE, "")
    if not url:
        raise BadValue("--store", url, f"give the store's URL, or put it into {STORE_VARIABLE}")

    async def work() -> T:
        source = open_source(url, prefix=arguments.prefix)
        try:
            return await operate(source)
        finally:
            await source.close()

    return asyncio.run(work())


# What is told.


def span_text(seconds: float) -> str:
    """Return a time as people say it: its two largest parts."""
    whole = max(round(seconds), 0)
    hours, minutes, rest = whole // 3_600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _about(opening: Opening) -> str:
    rate = f" at {opening.rate!r}" if opening.rate else ""
    return f"{opening.about()}{rate}"


def _mended(opening: Opening) -> str:
    if opening.rate:
        return f"ended: {opening.id}, the override of {_about(opening)}"
    return f"mended: {opening.id}, which stopped {opening.about()}"


def _sentence(opening: Opening) -> str:
    return (
        f"{opening.id} {opening.effect()} until {utc_text(opening.until_us)}, "
        f"by {opening.by}: {opening.why}"
    )


def _line(entry: AuditEntry | UnreadableLine) -> str:
    if isinstance(entry, UnreadableLine):
        return f"{'':23}  cannot be read: {entry.text}"
    opening = entry.opening
    about = "what could not be understood" if opening is None else _about(opening)
    opening_id = "--------" if opening is None else opening.id
    words = {BREAK: "broken", MEND: "mended", END: "ended"}[entry.what]
    text = f"{utc_text(entry.at_us)}  {opening_id:<8}  {words:<6}  {about}"
    if entry.what == BREAK and opening is not None:
        text += f", until {utc_text(opening.until_us)}"
    if entry.by:
        text += f", by {entry.by}"
    return f"{text}: {entry.why}" if entry.why else text


def _as_json(entry: AuditEntry | UnreadableLine) -> dict[str, object]:
    text = entry._asdict()
    if isinstance(entry, AuditEntry):
        text["opening"] = None if entry.opening is None else entry.opening._asdict()
    return text


def _print(arguments: Namespace, thing: dict[str, object], lines: Sequence[str]) -> None:
    if arguments.format == "json":
        sys.stdout.write(json.dumps(thing, indent=2) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
