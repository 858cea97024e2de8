"""The answer of each protocol for damaged rows, and of `/healthz` for a failed process."""

from __future__ import annotations

import json

from sluicegate.contracts.access import Identity
from sluicegate.contracts.errors import DataLoss
from sluicegate.doors.binding import Address
from sluicegate.doors.connection import PeerInfo
from sluicegate.doors.grpc.methods import GrpcStatus, metadata_of, status_of
from sluicegate.doors.http.health import Health
from sluicegate.doors.http.identity import reply_to
from sluicegate.doors.http.message import HttpRequest
from sluicegate.doors.resp.errors import reply_to_error

PEER = PeerInfo("127.0.0.1", 1, Address("127.0.0.1", 80))
ERROR = DataLoss("a row in the engine lmdb", "its checksum does not fit")


def test_damaged_row_is_500_in_http() -> None:
    reply = reply_to(ERROR)
    assert reply.status == 500
    assert json.loads(reply.body)["reason"] == "data_loss"


def test_damaged_row_is_data_loss_in_grpc() -> None:
    assert status_of(ERROR)[0] is GrpcStatus.DATA_LOSS
    assert (b"sluicegate-reason", b"data_loss") in metadata_of(ERROR)


def test_damaged_row_is_error_in_resp() -> None:
    assert reply_to_error(ERROR) == (
        b"-DATALOSS a row in the engine lmdb is damaged: its checksum does not fit\r\n"
    )


class Status:
    failed = ""

    def metrics(self) -> str:
        return ""

    def not_ready(self) -> str:
        return ""

    def not_alive(self) -> str:
        return self.failed


def test_healthz_of_failed_process_is_503() -> None:
    request, nobody = HttpRequest("GET", "/healthz", b"", [], PEER), Identity("", ())
    status = Status()
    health = Health(status)
    assert health.healthz(request, nobody, b"").status == 200
    status.failed = "the engine lmdb: it is unusable"
    reply = health.healthz(request, nobody, b"")
    assert reply.status == 503
    assert json.loads(reply.body)["reason"] == status.failed
