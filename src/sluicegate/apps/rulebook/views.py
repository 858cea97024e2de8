"""Looking: proposals, versions, files, differences, the fleet, the audit."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Final

from sluicegate.apps.rulebook import output as showing
from sluicegate.apps.rulebook.location import Place, the_rulebook
from sluicegate.apps.rulebook.reports import write_page
from sluicegate.contracts.errors import BadValue
from sluicegate.service.settings import seconds, whole

_COUNT_MAX: Final = 10_000
_NODES_MAX: Final = 1_000_000
_VERSIONS_MAX: Final = 1 << 53
_WAIT_S_MAX: Final = 3_600.0
_SUFFIXES: Final = (".yaml", ".yml", ".toml")


def run(arguments: Namespace) -> int:
    """Show it."""
    with the_rulebook(arguments) as place:
        if arguments.verb == "list":
            return _list(arguments, place)
        if arguments.verb == "show":
            return _show(arguments, place)
        if arguments.verb == "diff":
            return _diff(arguments, place)
        if arguments.verb == "audit":
            entries = place.desk.audit(count_max=_count(arguments), by=place.by)
            return _out(arguments, entries, lambda: showing.show_audit(entries))
        return _status(arguments, place)


def _list(arguments: Namespace, place: Place) -> int:
    desk, by = place
    if arguments.files:
        rules = desk.rules(arguments.at, by=by)
        return _out(arguments, rules, lambda: showing.show_files(rules))
    if arguments.versions:
        versions = desk.versions(count_max=_count(arguments), by=by)
        return _out(arguments, versions, lambda: showing.show_versions(versions))
    proposals = desk.proposals(arguments.state, count_max=_count(arguments), by=by)
    return _out(arguments, proposals, lambda: showing.show_proposals(proposals))


def _show(arguments: Namespace, place: Place) -> int:
    if arguments.id.endswith(_SUFFIXES):
        file = place.desk.file(arguments.id, arguments.at, by=place.by)
        return _out(arguments, file, lambda: showing.write_text(file["text"]))
    one = place.desk.proposal(arguments.id, by=place.by)
    if arguments.html:
        report = (one["verdict"] or {}).get("report")
        if not report:
            raise BadValue("--html", arguments.html, "the gate has no figures for this proposal")
        write_page(report, arguments.html)
    return _out(arguments, one, lambda: showing.show_proposal(one))


def _diff(arguments: Namespace, place: Place) -> int:
    found = place.desk.diff(arguments.before, arguments.after, by=place.by)
    return _out(arguments, found, lambda: showing.show_diff(found))


def _status(arguments: Namespace, place: Place) -> int:
    nodes = whole(0, _NODES_MAX)(arguments.wait, "--wait")
    if not nodes:
        status = place.desk.status(by=place.by)
        return _out(arguments, status, lambda: showing.show_fleet(status))
    if arguments.version is None:
        raise BadValue("--version", None, "say which version the nodes should run")
    version = whole(1, _VERSIONS_MAX)(arguments.version, "--version")
    timeout_s = seconds(0.1, _WAIT_S_MAX)(arguments.timeout, "--timeout")
    status = place.desk.wait(version, nodes=nodes, timeout_s=timeout_s, by=place.by)
    _out(arguments, status, lambda: showing.show_fleet(status))
    if not status["reached"]:
        showing.tell_unreached(status, version, nodes=nodes, timeout_s=timeout_s)
        return 1
    return 0


def _count(arguments: Namespace) -> int:
    return int(whole(1, _COUNT_MAX)(arguments.count, "--count"))


def _out(arguments: Namespace, value: object, show: Callable[[], object]) -> int:
    if arguments.json:
        showing.write_json(value)
    else:
        show()
    return 0
