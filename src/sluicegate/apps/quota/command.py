"""`sluicegate quota tune`: propose quotas by what callers have used for thirty days.

It reads what `sluicegate kv --usage` records, prints a line and draws a chart for each caller, and
with `--file` proposes the changed rules file to the rulebook, where it is tried on captured traffic
before anybody approves it. Nothing goes live by itself.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sluicegate.apps.quota.names import describe_unwritable, display_name, is_writable
from sluicegate.apps.quota.page import page_of
from sluicegate.apps.quota.replay_command import REPLAY, add_replay_arguments, run_replay
from sluicegate.apps.quota.rulebook_file import RulebookFile
from sluicegate.apps.quota.series import RU_MAX, Caller, Month, TuneSettings, callers_of
from sluicegate.command_line.text import counted, harmless
from sluicegate.command_line.verbs import add_verb
from sluicegate.contracts.errors import BadValue, Conflict, SluicegateError, Unavailable
from sluicegate.rules.plain_values import read_bytes
from sluicegate.rules.quota_edit import quotas_in, with_quotas
from sluicegate.rules.service_rule_set import FILE_BYTES_MAX
from sluicegate.service.settings import whole
from sluicegate.system import now_us
from sluicegate.telemetry.usage_files import DAY_MINUTES, MINUTE_US

EXAMPLES: Final = """\
examples:
  sluicegate quota tune --usage /var/lib/sluicegate-usage --rules rules/callers.yaml
  sluicegate quota tune --usage usage --rules callers.yaml --out quotas.html --write
  sluicegate quota tune --usage usage --file book --under callers.yaml --reason "monthly"
  sluicegate quota replay /var/lib/sluicegate-asked --quota shop=400
"""
TUNE: Final = (
    EXAMPLES
    + """
The first shows what would change; --write changes the rules file in place, and a running
sluicegate kv --rules takes it up; --file proposes the change to a rulebook, a folder or the URL of
its server (its token in SLUICEGATE_TOKEN), and shows what became of it. Without --rules the live
file of the rulebook is taken. Days and hours are UTC, and only whole days count.

exit code: 0 tuned, whether or not a quota changes; 1 it could not, or the gate has rejected it;
2 asked wrongly
"""
)
DAYS_MIN: Final = 7
DAYS_MAX: Final = 92
PERCENT_MAX: Final = 1_000


def add_arguments(parser: ArgumentParser) -> None:
    """The verb and its flags."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    tune = add_verb(verbs, "tune", "propose quotas by what callers have used", TUNE)
    add = tune.add_argument
    add("--usage", action="append", required=True, metavar="DIR",
        help="the folder of sluicegate kv --usage; may be repeated")  # fmt: skip
    add("--rules", default="", metavar="FILE", help="the rules file whose callers have quotas")
    add("--days", default="30", metavar="N", help="days of usage, up to today (default 30)")
    add("--default", default="", metavar="RU", help="the quota of callers without one, in RU/s")
    add("--headroom", default="30", metavar="PERCENT", help="headroom above usage (default 30)")
    add("--dead-band", default="10", metavar="PERCENT",
        help="propose nothing that is closer to the current quota (default 10)")  # fmt: skip
    add("--floor", default="1", metavar="RU", help="propose at least this (default 1)")
    add("--cap", default="", metavar="RU", help="propose at most this")
    add("--days-min", default="14", metavar="N", help="days with enough data (default 14)")
    add("--out", default="quotas.html", metavar="FILE",
        help="the page with the curves (default quotas.html)")  # fmt: skip
    add("--write", action="store_true", help="change the rules file")
    add("--file", default="", metavar="RULEBOOK", help="propose the change: a folder, or a URL")
    add("--under", default="", metavar="NAME", help="the file's name there (default: its own)")
    add("--reason", default="", metavar="WHY", help="the reason, kept with the proposal")
    add("--confirm", action="store_true", help="propose quotas that change 10-fold")
    add("--ca", default="", metavar="FILE", help="authority of the server certificate")
    add("--cert", default="", metavar="FILE", help="a client certificate for it")
    add("--cert-key", default="", metavar="FILE", help="its key")
    add("--as", dest="who", default="", metavar="NAME", help="the proposer, in a folder here")
    about = "try quotas on what callers really asked"
    add_replay_arguments(add_verb(verbs, "replay", about, REPLAY))


def run(arguments: Namespace) -> int:
    """Tune, show, and file; or replay."""
    if arguments.verb == "replay":
        return run_replay(arguments)
    days = whole(DAYS_MIN, DAYS_MAX)(arguments.days, "--days")
    settings = _tune_settings(arguments, days)
    default = _ru(arguments.default, "--default", 1)
    rulebook = _rulebook(arguments)
    source, text = _rules(arguments, rulebook)
    current = quotas_in(text, source)
    month = Month.read(arguments.usage, now_us() // MINUTE_US // DAY_MINUTES - days, days)
    if not month.busiest:
        raise SluicegateError(
            f"nothing was used on the {days} whole days before today, as far as "
            f"{' and '.join(arguments.usage)} say; let sluicegate kv --usage run for a while"
        )
    callers = callers_of(month, current, default, settings)
    _draw(arguments.out, page_of(callers, first_day=month.first_day, days=days))
    _show(callers)
    sys.stdout.write(f"\nthe curves are in {arguments.out}\n")
    changes = {one.name: one.proposal.quota for one in callers if one.proposal.quota is not None}
    odd = [name for name in changes if not is_writable(name)]
    if odd:
        sys.stdout.write(f"\n{describe_unwritable(odd)}")
        changes = {name: quota for name, quota in changes.items() if is_writable(name)}
    if not changes:
        sys.stdout.write("no quota would change\n")
        return 0
    if not arguments.write and rulebook is None:
        return 0
    changed = with_quotas(text, changes, source)
    if rulebook is not None and not _propose(arguments, rulebook, changed, len(changes)):
        left = f"{arguments.rules} is left as it was\n" if arguments.write else ""
        sys.stdout.write(left)
        return 1
    if arguments.write:
        _replace(Path(arguments.rules), text, changed)
        sys.stdout.write(f"{arguments.rules} is changed: {counted(len(changes), 'quota')}\n")
    return 0


# Arguments.


def _tune_settings(arguments: Namespace, days: int) -> TuneSettings:
    percent = whole(0, PERCENT_MAX)
    floor = whole(1, RU_MAX)(arguments.floor, "--floor")
    return TuneSettings(
        headroom_percent=percent(arguments.headroom, "--headroom"),
        dead_band_percent=percent(arguments.dead_band, "--dead-band"),
        floor=floor,
        cap=_ru(arguments.cap, "--cap", floor),
        days_min=whole(DAYS_MIN, days)(arguments.days_min, "--days-min"),
    )


def _ru(text: str, flag: str, least: int) -> int | None:
    return int(whole(least, RU_MAX)(text, flag)) if text else None


def _rulebook(arguments: Namespace) -> RulebookFile | None:
    if not arguments.file:
        return None
    names = (("--ca", "ca"), ("--cert", "cert"), ("--cert-key", "cert_key"), ("--as", "who"))
    text = [(flag, getattr(arguments, name)) for flag, name in names]
    flags = [word for flag, value in text if value for word in (flag, value)]
    return RulebookFile(arguments.file, arguments.under or Path(arguments.rules).name, flags)


def _rules(arguments: Namespace, rulebook: RulebookFile | None) -> tuple[str, str]:
    """Return the name and the text of the rules file."""
    if not arguments.rules:
        if arguments.write:
            raise BadValue("--rules", "", "give the rules file that is to be changed")
        return (rulebook.name, rulebook.live()) if rulebook is not None else ("", "")
    if os.path.isdir(arguments.rules):
        raise BadValue("--rules", arguments.rules, "give the file, and not its folder")
    try:
        text = read_bytes(arguments.rules, FILE_BYTES_MAX).decode("utf-8")
    except UnicodeDecodeError:
        raise BadValue("--rules", arguments.rules, "it is not UTF-8; save it as UTF-8") from None
    if rulebook is not None:
        rulebook.check_live(text, arguments.rules)
    return arguments.rules, text


def _propose(arguments: Namespace, rulebook: RulebookFile, changed: str, count: int) -> bool:
    """Propose it and write what became of it; whether the gate accepted it."""
    message = f"Tune {counted(count, 'quota')} by {arguments.days} days of usage"
    report = Path(arguments.out)
    report = report.with_name(f"{report.stem}-shadow.html")
    sys.stdout.flush()
    result = rulebook.propose(
        changed,
        message=message,
        reason=arguments.reason,
        confirm=arguments.confirm,
        report=report,
    )
    sys.stdout.write(f"\n{harmless(result.text)}")
    return result.accepted


# Output.


def _show(callers: Sequence[Caller]) -> None:
    names = [display_name(one.name) for one in callers]
    width = max(map(len, names))
    for name, one in zip(names, callers, strict=True):
        proposal = one.proposal
        now = "-" if one.current is None else f"{one.current:,}"
        new = "stays" if proposal.quota is None else f"{proposal.quota:,}"
        refused = f" {one.refused_ru:,} RU were refused." if one.refused_ru else ""
        line = f"{name:<{width}}  {now:>10} -> {new:<10} {proposal.reason}{refused}"
        sys.stdout.write(harmless(line) + "\n")


def _draw(path: str, page: str) -> None:
    try:
        Path(path).write_text(page, encoding="utf-8")
    except OSError as error:
        raise Unavailable(f"the file {path}", error.strerror or str(error)) from None


def _replace(path: Path, before: str, after: str) -> None:
    """At once, so that whoever follows the file never sees half of it."""
    path = path.resolve()  # a link stays one
    draft = path.with_name(f".{path.name}.new")
    try:
        if path.read_bytes() != before.encode():
            raise Conflict(str(path), "it is not as it was read; tune anew")
        with open(draft, "wb") as file:
            file.write(after.encode())
            file.flush()
            os.fsync(file.fileno())
        os.chmod(draft, path.stat().st_mode)
        os.replace(draft, path)
    except OSError as error:
        raise Unavailable(f"the file {path}", error.strerror or str(error)) from None
