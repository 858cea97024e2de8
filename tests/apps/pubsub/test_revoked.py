"""WebSockets of an account whose access is withdrawn: real processes, and a kept client."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from sluicegate.policies.access import token_digest
from tests.apps.pubsub.process import PubSubProcess
from tests.apps.pubsub.socket import talk
from tests.apps.pubsub.test_whole import ANN, BOB, access_of
from tests.engines.child import PATIENCE_S

OTHER = "o" * 43
CHANGES: dict[str, Callable[[str], str]] = {
    "gone": lambda text: text.replace('"ann"', '"carl"'),
    "another_token": lambda text: text.replace(token_digest(ANN), token_digest(OTHER)),
    "fewer_grants": lambda text: text.replace('"publish", ', "", 1),
}


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_socket_of_revoked_account_is_closed_with_4403(tmp_path: Path, change: str) -> None:
    access = Path(access_of(tmp_path))
    with (
        PubSubProcess(tmp_path, "--access", str(access)) as server,
        talk(server, ANN) as ann,
        talk(server, BOB) as bob,
    ):
        for one in (ann, bob):
            assert one.ask("subscribe", channel="news")["type"] == "subscribed"
        text = access.read_text()
        changed = CHANGES[change](text)
        assert changed != text
        access.write_text(changed)
        server.signal(signal.SIGHUP)
        with pytest.raises(ConnectionClosed) as closed:
            ann.connection.recv(timeout=PATIENCE_S)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (
            4403,
            "access was revoked or reduced",
        )
        assert bob.ask("publish", channel="news", data=1)["type"] == "accepted"
        assert bob.take(1) == [1]


def test_socket_of_account_with_new_grants_gets_them(tmp_path: Path) -> None:
    access = Path(access_of(tmp_path))
    text = access.read_text()
    access.write_text(text.replace('"publish", ', "", 1))
    with PubSubProcess(tmp_path, "--access", str(access)) as server, talk(server, ANN) as ann:
        assert ann.ask("publish", channel="news", data=1)["problem"]["status"] == 403
        access.write_text(text)
        server.signal(signal.SIGHUP)
        while (told := ann.ask("publish", channel="news", data=1))["type"] != "accepted":
            assert told["problem"]["status"] == 403
