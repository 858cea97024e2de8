"""Views: the verbs that look at one of several things: `list`, `show` and `status`."""

from __future__ import annotations

from argparse import Namespace
from typing import Final

from sluicegate.apps.rulebook import output
from sluicegate.apps.rulebook.location import the_rulebook
from sluicegate.apps.rulebook.operations import COUNT_MAX, wait, waiting_of
from sluicegate.apps.rulebook.reports import write_page
from sluicegate.contracts.errors import BadValue
from sluicegate.contracts.rule_admin import VERSION_MAX
from sluicegate.service.settings import whole

_SUFFIXES: Final = (".yaml", ".yml", ".toml")


def list_things(arguments: Namespace) -> int:
    """Show proposals, releases, or the files of a revision."""
    with the_rulebook(arguments) as (admin, by):
        if arguments.files:
            rules = admin.rules(arguments.at, by=by)
            return output.show(arguments, rules, output.show_files)
        count = int(whole(1, COUNT_MAX)(arguments.count, "--count"))
        if arguments.versions:
            versions = admin.versions(count_max=count, by=by)
            return output.show(arguments, versions, output.show_versions)
        proposals = admin.proposals(arguments.state, count_max=count, by=by)
        return output.show(arguments, proposals, output.show_proposals)


def show(arguments: Namespace) -> int:
    """Show a file or a proposal; with --html its report."""
    with the_rulebook(arguments) as (admin, by):
        if arguments.id.endswith(_SUFFIXES):
            file = admin.file(arguments.id, arguments.at, by=by)
            return output.show(arguments, file, lambda file: output.write_text(file["text"]))
        one = admin.proposal(arguments.id, by=by)
        if arguments.html:
            report = (one["verdict"] or {}).get("report")
            if not report:
                remedy = "the gate has no report on this proposal"
                raise BadValue("--html", arguments.html, remedy)
            write_page(report, arguments.html)
        return output.show(arguments, one, output.show_proposal)


def status(arguments: Namespace) -> int:
    """Show what the fleet runs; with --wait, once so many nodes run a release."""
    waiting = waiting_of(arguments)
    with the_rulebook(arguments) as (admin, by):
        if not waiting.nodes:
            return output.show(arguments, admin.status(by=by), output.show_fleet)
        if arguments.version is None:
            raise BadValue("--release", None, "say which release the nodes should run")
        version = whole(1, VERSION_MAX)(arguments.version, "--release")
        return wait(arguments, admin, by, version, waiting)
