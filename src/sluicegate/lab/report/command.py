"""The verb `sluicegate lab report`: scenarios run, and one page with plots and margins of them."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arguments import add_run_arguments, parse_jobs, parse_seeds
from sluicegate.lab.progress import RunProgress, write_status

EXAMPLES: Final = """\
examples:
  sluicegate lab report                              all scenarios, into lab-report/
  sluicegate lab report overload priority --out page     two of them
  sluicegate lab report mine.py --runs 2
"""
MET: Final = 0
MISSED: Final = 1


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags."""
    add = parser.add_argument
    add("names", metavar="NAME", nargs="*", help="names, numbers or .py files (default: all)")
    add_run_arguments(parser, jobs="auto")
    add("--out", metavar="DIR", default="lab-report", help="the folder (default lab-report)")


def run(arguments: Namespace) -> int:
    """Run the scenarios, and write the page and `report.json`."""
    from sluicegate.lab.report import results  # noqa: PLC0415 - the scenarios come with it
    from sluicegate.lab.report.page import write_page  # noqa: PLC0415 - as above

    seeds = parse_seeds(arguments.seed, arguments.runs)
    places = results.choose_scenarios(arguments.names)
    folder = _make_folder(arguments.out)
    progress = RunProgress(write_status, live=sys.stderr.isatty())
    report = results.run_report(places, seeds, parse_jobs(arguments.jobs), progress)
    progress.end()
    page = write_page(report, folder)
    text = json.dumps(results.as_json(report), indent=1)
    (folder / "report.json").write_text(text, encoding="utf-8")
    for line in results.summary(report):
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"report: {page}\n")
    return MET if report.holds() else MISSED


def _make_folder(out: str) -> Path:
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadValue("--out", out, f"give a folder that can be written ({error})") from error
    return folder
