"""Cluster commands: what the nodes of a cluster ask of each other."""

from __future__ import annotations

from typing import Final

from sluicegate.contracts.suppression import AccountMaster, NamedNode
from sluicegate.contracts.usage import UsageTotals
from sluicegate.doors.resp.connection_commands import CONNECTION
from sluicegate.doors.resp.session import Command, CommandTable, Session, identity_of
from sluicegate.doors.resp.settings import RespSettings
from sluicegate.wire.node_messages import encode_answer, encode_totals, parse_report, parse_usage
from sluicegate.wire.resp import encode_reply


def report(session: Session, parts: list[bytes]) -> bytes:
    """SG.REPORT: see `wire/node_messages.py`."""
    master: AccountMaster = session.state.service
    return encode_answer(master.report(parse_report(parts), identity_of(session)))


def usage(session: Session, parts: list[bytes]) -> bytes:
    """SG.USAGE: see `wire/node_messages.py`."""
    totals: UsageTotals = session.state.service
    return encode_totals(totals.report_usage(parse_usage(parts), identity_of(session)))


def node(session: Session, parts: list[bytes]) -> bytes:
    """SG.NODE: what this node is called."""
    named: NamedNode = session.state.service
    return encode_reply(named.name_for(identity_of(session)).encode())


def _no_state(settings: RespSettings) -> None:
    return None


CLUSTER: Final = CommandTable(
    (
        *CONNECTION,
        Command("SG.REPORT", 9, 0, False, report, "What a node's accounts attempted"),
        Command("SG.NODE", 1, 1, False, node, "What this node is called"),
        Command("SG.USAGE", 4, 0, False, usage, "What they have used up, and hold"),
    ),
    _no_state,
)
