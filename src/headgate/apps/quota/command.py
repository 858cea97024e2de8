"""`headgate quota tune`: proposes quotas by what callers have used for thirty days.

It reads what `headgate kv --usage` keeps, prints a line and writes a picture for each caller, and
with `--file` hands the changed rules file to the rulebook as a proposal (`headgate rules propose`),
where it is tried on captured traffic before anybody approves it. Nothing goes live from here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headgate.apps.quota.editing import quotas_in, with_quotas
from headgate.apps.quota.page import page_of
from headgate.apps.quota.series import Caller, Wishes, callers_of
from headgate.contracts.errors import BadValue, HeadgateError
from headgate.lines import counted, harmless
from headgate.system import now_us
from headgate.telemetry.usage_files import DAY_MINUTES, MINUTE_US, read_usage

EXAMPLES: Final = """\
examples:
  headgate quota tune --usage /var/lib/headgate-usage --rules rules/callers.yaml
  headgate quota tune --usage usage --rules callers.yaml --out quotas.html --write
  headgate quota tune --usage usage --rules callers.yaml --file book --under callers.yaml

--write changes the rules file in place; --file proposes the change to a rulebook, a folder or the
URL of its server (its token in HEADGATE_TOKEN), and shows what became of the proposal.
"""
DAYS_DEFAULT: Final = 30
DAYS_MAX: Final = 92
FILE_BYTES_MAX: Final = 10_000_000


def add_arguments(parser: ArgumentParser) -> None:
    """The verb and its flags."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    tune = verbs.add_parser("tune", help="propose quotas by what callers have used")
    tune.add_argument(
        "--usage", action="append", required=True, metavar="DIR", help="of headgate kv --usage"
    )
    tune.add_argument(
        "--rules", default="", metavar="FILE", help="the rules file whose callers have quotas"
    )
    tune.add_argument("--days", type=int, default=DAYS_DEFAULT, metavar="N", help="(default 30)")
    tune.add_argument(
        "--default", type=int, default=None, metavar="RU", help="the quota of who has none (RU/s)"
    )
    tune.add_argument(
        "--headroom", type=int, default=30, metavar="PERCENT", help="on top (default 30)"
    )
    tune.add_argument(
        "--dead-band",
        type=int,
        default=10,
        metavar="PERCENT",
        help="what is closer to the quota now is left (default 10)",
    )
    tune.add_argument("--floor", type=int, default=1, metavar="RU", help="at least (default 1)")
    tune.add_argument("--cap", type=int, default=None, metavar="RU", help="at most")
    tune.add_argument(
        "--days-min", type=int, default=14, metavar="N", help="with enough data (default 14)"
    )
    tune.add_argument(
        "--out", default="quotas.html", metavar="FILE", help="the page (default quotas.html)"
    )
    tune.add_argument("--write", action="store_true", help="change the rules file")
    tune.add_argument("--file", default="", metavar="RULEBOOK", help="propose the change to it")
    tune.add_argument(
        "--under", default="", metavar="NAME", help="the file's name there; else its own"
    )
    tune.add_argument("--reason", default="", help="noted with the proposal")


def run(arguments: Namespace) -> int:
    """Tune, show, and file."""
    if not 7 <= arguments.days <= DAYS_MAX:
        raise BadValue("--days", arguments.days, f"give 7 to {DAYS_MAX}")
    if (arguments.write or arguments.file) and not arguments.rules:
        raise BadValue("--rules", "", "give the rules file that is to be changed")
    text = _read(arguments.rules) if arguments.rules else ""
    current = quotas_in(text, arguments.rules) if text else {}
    last_day = now_us() // MINUTE_US // DAY_MINUTES
    first = (last_day - arguments.days) * DAY_MINUTES
    usage = read_usage(arguments.usage, first, last_day * DAY_MINUTES)
    if not usage:
        raise HeadgateError(
            f"nothing was used on the {arguments.days} whole days before today, as far as "
            f"{' and '.join(arguments.usage)} say; let headgate kv --usage run for a while"
        )
    try:
        callers = callers_of(
            usage,
            current,
            arguments.default,
            last_day=last_day,
            days=arguments.days,
            wishes=Wishes(
                arguments.headroom,
                arguments.dead_band,
                arguments.floor,
                arguments.cap,
                arguments.days_min,
            ),
        )
    except ValueError as error:
        raise BadValue("quota tune", "", str(error)) from None
    Path(arguments.out).write_text(page_of(callers, arguments.days), encoding="utf-8")
    _show(callers)
    changes = {one.name: one.proposal.quota for one in callers if one.proposal.quota is not None}
    sys.stdout.write(f"\nthe curves are in {arguments.out}\n")
    if not changes:
        sys.stdout.write("no quota would change\n")
        return 0
    if arguments.write or arguments.file:
        changed = with_quotas(text, changes, arguments.rules)
        if arguments.write:
            _replace(Path(arguments.rules), changed)
            sys.stdout.write(f"{arguments.rules} is changed\n")
        if arguments.file:
            return _file(arguments, changed, callers)
    return 0


def _show(callers: Sequence[Caller]) -> None:
    width = max(len(one.name) for one in callers)
    for one in callers:
        proposal = one.proposal
        now = "-" if one.current is None else f"{one.current:,}"
        new = "stays" if proposal.quota is None else f"{proposal.quota:,}"
        refused = f" {one.refused_ru:,} RU were refused." if one.refused_ru else ""
        line = f"{one.name:<{width}}  {now:>10} -> {new:<10} {proposal.reason}{refused}"
        sys.stdout.write(harmless(line) + "\n")


def _file(arguments: Namespace, changed: str, callers: Sequence[Caller]) -> int:
    """Hand it to the rulebook, as a person would."""
    count = sum(one.proposal.quota is not None for one in callers)
    name = arguments.under or Path(arguments.rules).name
    message = f"Tune {counted(count, 'quota')} by {arguments.days} days of usage"
    with tempfile.TemporaryDirectory(prefix="headgate-quota-") as folder:
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(changed, encoding="utf-8")
        command = [sys.executable, "-m", "headgate.cli", "rules", "propose", folder]
        command += ["--rulebook", arguments.file, "--message", message]
        if arguments.reason:
            command += ["--reason", arguments.reason]
        sys.stdout.flush()
        return subprocess.run(command, check=False).returncode


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(FILE_BYTES_MAX)
    except (OSError, UnicodeDecodeError) as error:
        raise BadValue("--rules", path, f"it cannot be read: {error}") from None


def _replace(path: Path, text: str) -> None:
    """At once, so that whoever follows the file never sees half of it."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)
