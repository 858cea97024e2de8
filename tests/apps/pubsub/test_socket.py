"""The WebSocket of `sluicegate pubsub`: real processes, and a client that others keep."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import pytest
import trustme
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Opcode
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from sluicegate.apps.pubsub.reading_group import GROUP_MIN
from tests.apps.pubsub.process import PubSubProcess, Subscriber
from tests.apps.pubsub.socket import Talk, frame, handshake, talk, url_of
from tests.apps.pubsub.test_whole import ANN, BOB, UNLIMITED, access_of
from tests.attacks.prober import connected
from tests.engines.child import PATIENCE_S, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PubSubProcess]:
    with PubSubProcess(tmp_path_factory.mktemp("socket"), *UNLIMITED) as running:
        yield running


def test_what_is_published_reaches_each_subscriber_by_whatever_way(server: PubSubProcess) -> None:
    with ExitStack() as stack:
        one, two = (stack.enter_context(talk(server)) for _ in range(2))
        events = stack.enter_context(Subscriber(server, "ways"))
        for each in (one, two):
            assert each.ask("subscribe", channel="ways")["type"] == "subscribed"
        first = one.ask("publish", channel="ways", data={"n": 0})
        assert first["type"] == "accepted"
        second = server.accept("ways", {"n": 1})
        assert second > first["position"]
        assert one.take(2) == two.take(2) == events.take(2) == [{"n": 0}, {"n": 1}]


def test_a_reply_comes_when_the_message_is_in_the_history(server: PubSubProcess) -> None:
    with talk(server) as client:
        position = client.ask("publish", channel="kept", data="é\U0001f600")["position"]
        page = server.history("kept")
        assert [(one["position"], one["data"]) for one in page["messages"]] == [
            (position, "é\U0001f600")
        ]


def test_a_subscription_resumes_where_it_was(server: PubSubProcess) -> None:
    positions = [server.accept("resume", n) for n in range(5)]
    with talk(server) as client:
        told = client.ask("subscribe", channel="resume", after=positions[1])
        assert told["position"] == positions[1]
        assert client.take(3) == [2, 3, 4]
        client.ask("subscribe", channel="resume", after=positions[3])  # anew
        assert client.take(1) == [4]
        server.accept("resume", 5)
        assert client.take(1) == [5]  # once


def test_who_subscribes_to_what_is_new_can_resume_before_the_first_message(
    server: PubSubProcess,
) -> None:
    server.accept("quiet", "before")
    with talk(server) as client:
        position = client.ask("subscribe", channel="quiet")["position"]
    server.accept("quiet", "meanwhile")
    with talk(server) as client:
        client.ask("subscribe", channel="quiet", after=position)
        assert client.take(1) == ["meanwhile"]


def test_lost_continuity_is_told(tmp_path: Path) -> None:
    with PubSubProcess(tmp_path, *UNLIMITED, "--history-bytes", "20_000") as server:
        positions = [server.accept("news", "x" * 1_000) for _ in range(40)]
        with talk(server) as client:
            client.ask("subscribe", channel="news", after=positions[0])
            gap = client.next()
            kept = [one["position"] for one in server.history("news")["messages"]]
            assert gap == {
                "type": "gap",
                "channel": "news",
                "after": positions[0],
                "before": kept[0],
                "lost": None,
            }
            assert len(client.take(len(kept))) == len(kept)


def test_many_who_subscribe_hear_all_of_it_between_the_replies_to_what_they_ask(
    server: PubSubProcess,
) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(talk(server)) for _ in range(2 * GROUP_MIN)]
        for one in clients:
            one.ask("subscribe", channel="many")
        for turn in range(8):
            asked = [
                one.send("publish", channel="many", data=f"{turn}/{number}" + "x" * 2_000)
                for number, one in enumerate(clients)
            ]
            heard = []
            for one, request_id in zip(clients, asked, strict=True):
                told = [one.next() for _ in range(len(clients) + 1)]
                assert sum(reply.get("id") == request_id for reply in told) == 1
                heard.append([reply["position"] for reply in told if reply["type"] == "message"])
            assert all(one == sorted(heard[0]) for one in heard)


def test_who_unsubscribes_hears_no_more(server: PubSubProcess) -> None:
    with talk(server) as client:
        client.ask("subscribe", channel="left")
        assert client.ask("unsubscribe", channel="left")["type"] == "unsubscribed"
        server.accept("left", "unheard")
        client.ask("subscribe", channel="heard")
        server.accept("heard", "heard")
        assert client.take(1) == ["heard"]
        assert client.ask("unsubscribe", channel="never")["type"] == "unsubscribed"


def test_a_refusal_says_which_limit_and_the_connection_goes_on(tmp_path: Path) -> None:
    with PubSubProcess(tmp_path, "--channel-rate", "3") as server, talk(server) as client:
        replies = [client.ask("publish", channel="busy", data=n) for n in range(100)]
        refused = [one["problem"] for one in replies if one["type"] == "error"]
        assert refused
        assert {(one["reason"], one["status"]) for one in refused} == {("channel_limited", 429)}
        accepted = [n for n, one in enumerate(replies) if one["type"] == "accepted"]
        assert [one["data"] for one in server.history("busy")["messages"]] == accepted
        assert client.ask("publish", channel="quiet", data=1)["type"] == "accepted"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("no json", "message"),
        ("[]", "message"),
        ('{"type":"publish","channel":"news"}', "id"),
        ('{"type":"shout","id":1,"channel":"news"}', "type"),
        ('{"type":["publish"],"id":1,"channel":"news"}', "type"),
        ('{"type":"publish","id":1,"channel":7}', "channel"),
        ('{"type":"publish","id":1,"channel":"no/pe"}', "channel"),
        ('{"type":"publish","id":1,"channel":"news","dat":1}', "dat"),
        ('{"type":"publish","id":1,"channel":"news","data":1e999}', "data"),
        ('{"type":"subscribe","id":1,"channel":"news","after":-1}', "after"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_remedy(
    server: PubSubProcess, text: str, field: str
) -> None:
    with talk(server) as client:
        client.connection.send(text)
        told = client.next()
        assert (told["type"], told["problem"]["status"]) == ("error", 400)
        assert told["problem"]["field"] == field
        assert told["problem"]["remedy"]
        assert client.ask("publish", channel="after", data=1)["type"] == "accepted"


def test_limit_of_messages_is_announced(tmp_path: Path) -> None:
    flags = (*UNLIMITED, "--message-bytes-max", "5000")
    with PubSubProcess(tmp_path, *flags) as server, talk(server) as client:
        client.ask("publish", channel="news", data=1)
        assert client.message_bytes_max == 5_000


@pytest.mark.parametrize("fragments", [1, 7], ids=["one frame", "fragments"])
def test_long_message_gets_error_and_connection_stays(
    server: PubSubProcess, fragments: int
) -> None:
    with talk(server) as client:
        for turn in range(3):
            before = client.send("publish", channel="long", data=turn)
            asked = {"type": "publish", "id": 900, "channel": "long", "data": "x" * 70_000}
            text = json.dumps(asked)
            size = -(-len(text) // fragments)
            pieces = [text[at : at + size] for at in range(0, len(text), size)]
            client.connection.send(pieces if fragments > 1 else text)
            after = client.send("publish", channel="long", data=turn)
            told = {one["id"]: one for one in (client.next() for _ in range(3))}
            assert told[before]["type"] == told[after]["type"] == "accepted"
            problem = told[900]["problem"]
            assert (problem["status"], problem["field"]) == (413, "message")
            assert problem["value"] == f"{len(text):,} bytes"
            assert problem["remedy"] == "send at most 65,536 (--message-bytes-max)"


@pytest.mark.parametrize(
    ("head", "request_id"),
    [
        ('{"id":7,"type":"publish","data":"', 7),
        (' { "channel" : "a" , "id" : 7, "data":"', 7),
        ('{"data":"', None),
        ('{"data":{"id":7,"x":"', None),
        ('{"type":"a\\",\\"id\\":7,', None),
        ('["id":7,"', None),
        ('{"id":99999999999999999,"data":"', None),
    ],
)
def test_error_of_long_message_has_only_an_id_at_its_beginning(
    server: PubSubProcess, head: str, request_id: int | None
) -> None:
    with talk(server) as client:
        client.connection.send(head + "x" * 70_000)
        assert client.next()["id"] == request_id


def test_unreadable_message_gets_error_with_its_id(server: PubSubProcess) -> None:
    with talk(server) as client:
        client.connection.send('{"type":"publish","id":7,"channel":"news","data":NaN}')
        told = client.next()
        assert (told["id"], told["problem"]["field"]) == (7, "message")


@pytest.mark.parametrize("how", ["a close", "half a close"])
def test_accepted_messages_are_acknowledged_before_the_end(server: PubSubProcess, how: str) -> None:
    count = 50
    with connected(server.port) as sock:
        sock.sendall(handshake(server.port))
        asked = b"".join(
            frame(
                Opcode.TEXT,
                json.dumps({"type": "publish", "id": n, "channel": how[-5:], "data": n}).encode(),
            )
            for n in range(count)
        )
        if how == "a close":
            sock.sendall(asked + frame(Opcode.CLOSE, b"\x03\xe8"))
        else:
            sock.sendall(asked)
            sock.shutdown(socket.SHUT_WR)
        data = b""
        while piece := sock.recv(65_536):
            data += piece
    assert data.count(b'"type":"accepted"') == count
    if how == "a close":
        assert data.endswith(b"\x88\x02\x03\xe8")


def test_wrong_version_is_told_the_right_one(server: PubSubProcess) -> None:
    for request in (
        handshake(server.port, version="8"),
        handshake(server.port).replace(b"Upgrade: websocket\r\n", b""),
    ):
        with connected(server.port) as sock:
            sock.sendall(request)
            head = sock.recv(65_536).lower()
            assert head.startswith(b"http/1.1 426 ")
            assert b"\r\nsec-websocket-version: 13\r\n" in head


def test_binary_messages_are_not_understood(server: PubSubProcess) -> None:
    with talk(server) as client:
        client.connection.send(b"{}")
        with pytest.raises(ConnectionClosed) as closed:
            client.next()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1003


def test_accounts_are_apart_and_grants_are_kept(tmp_path: Path) -> None:
    with (
        PubSubProcess(tmp_path, "--access", access_of(tmp_path)) as server,
        talk(server, ANN) as ann,
        talk(server, BOB) as bob,
        talk(server, "r" * 43) as reader,
    ):
        for each in (ann, bob, reader):
            assert each.ask("subscribe", channel="news")["type"] == "subscribed"
        bob.ask("publish", channel="news", data="of bob")
        ann.ask("publish", channel="news", data="of ann")
        assert (ann.take(1), bob.take(1)) == (["of ann"], ["of bob"])
        assert reader.ask("publish", channel="news", data=1)["problem"]["status"] == 403
        for token in ("", "x" * 43):
            with pytest.raises(InvalidStatus, match="401"), talk(server, token):
                pass
        wrong = [Subprotocol("sluicegate.pubsub.v1"), Subprotocol("bearer.nobody")]
        with (
            talk(server, subprotocols=wrong) as refused,
            pytest.raises(ConnectionClosed, match=r"4401 .* this token is nobody's"),
        ):
            refused.next()
        # A browser can set no header: it says its token beside the protocol, and hears only that.
        names = [Subprotocol("sluicegate.pubsub.v1"), Subprotocol(f"bearer.{ANN}")]
        with talk(server, subprotocols=names) as browser:
            assert browser.connection.subprotocol == names[0]
            browser.ask("subscribe", channel="news", after=0)
            assert browser.take(1) == ["of ann"]


def test_subscriptions_of_a_connection_are_bounded(tmp_path: Path) -> None:
    with (
        PubSubProcess(tmp_path, *UNLIMITED, "--subscriptions-max", "3") as server,
        talk(server) as client,
    ):
        replies = [client.ask("subscribe", channel=f"c{n}") for n in range(5)]
        assert [one["type"] for one in replies] == ["subscribed"] * 3 + ["error"] * 2
        assert replies[3]["problem"]["reason"] == "subscriptions_full"
        assert client.ask("subscribe", channel="c0")["type"] == "subscribed"  # again is no more
        client.ask("unsubscribe", channel="c1")
        assert client.ask("subscribe", channel="c4")["type"] == "subscribed"


def test_who_sends_faster_than_it_may_is_read_later_and_loses_nothing(tmp_path: Path) -> None:
    flags = (*UNLIMITED, "--received-rate", "50")
    with PubSubProcess(tmp_path, *flags) as server, talk(server) as client:
        ids = [client.send("publish", channel="news", data=n) for n in range(100)]
        assert [client.next()["id"] for _ in ids] == ids
        assert server.metric("sluicegate_pubsub_rested_total") > 0
        page = server.history("news")
        assert [one["data"] for one in page["messages"]] == list(range(100))


@pytest.mark.parametrize(
    ("flags", "data"),
    [(("--sent-rate", "20"), "x"), (("--sent-bytes", "4096"), "x" * 200)],
    ids=["messages", "bytes"],
)
def test_a_connection_is_sent_no_more_a_second_than_it_may_be(
    tmp_path: Path, flags: tuple[str, ...], data: str
) -> None:
    with PubSubProcess(tmp_path, *UNLIMITED, *flags) as server, talk(server) as client:
        for _ in range(60):
            server.accept("news", data)
        began = monotonic()
        client.ask("subscribe", channel="news", after=0)
        assert client.take(60) == [data] * 60
        # A second's worth is a burst, another one is sent in debt; 60 are three of them, or more.
        assert monotonic() - began >= 1


def test_a_connection_that_is_sent_little_holds_up_nobody(tmp_path: Path) -> None:
    with (
        PubSubProcess(tmp_path, *UNLIMITED, "--sent-rate", "1") as server,
        talk(server) as slow,
        talk(server) as other,
        Subscriber(server, "news") as events,
    ):
        slow.ask("subscribe", channel="news")
        other.ask("subscribe", channel="elsewhere")
        count = round(3 * PATIENCE_S)  # that long for the slow one; nobody else has that patience
        for n in range(count):
            server.accept("news", n)
        server.accept("elsewhere", "x")
        assert events.take(count) == list(range(count))
        assert other.take(1) == ["x"]
        assert slow.take(2) == [0, 1]


def test_who_goes_away_is_forgotten(server: PubSubProcess) -> None:
    before = server.metric("sluicegate_pubsub_channels")
    with ExitStack() as stack:
        for n in range(10):
            stack.enter_context(talk(server)).ask("subscribe", channel=f"gone-{n}")
        assert server.metric("sluicegate_pubsub_channels") == before + 10
    until(lambda: server.metric("sluicegate_pubsub_channels") == before, "channels to be forgotten")
    until(lambda: server.metric("sluicegate_pubsub_sockets") == 0, "sockets to be forgotten")


def test_a_service_that_ends_says_goodbye(tmp_path: Path) -> None:
    with PubSubProcess(tmp_path, *UNLIMITED) as server, talk(server) as client:
        client.ask("subscribe", channel="news")
        server.signal(signal.SIGTERM)
        with pytest.raises(ConnectionClosed) as closed:
            client.next()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001
        assert server.child.wait(60) == 0


def test_streams_and_sockets_share_the_number_of_subscribers(tmp_path: Path) -> None:
    flags = (*UNLIMITED, "--subscribers-max", "2")
    with PubSubProcess(tmp_path, *flags) as server, talk(server):
        with Subscriber(server, "news"), pytest.raises(InvalidStatus, match="503"), talk(server):
            pass
        until(lambda: _connects(server), "the place of who has gone")


def _connects(server: PubSubProcess) -> bool:
    try:
        with talk(server):
            return True
    except InvalidStatus:
        return False


def test_without_its_codec_the_service_names_what_installs_it(tmp_path: Path) -> None:
    # An entry of None is how Python is told that there is no such module.
    code = "import sys; sys.modules['websockets'] = None; import sluicegate.apps.pubsub.app"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "MissingPackage: the package websockets is missing; pip install '.[server]'" in (
        done.stderr
    )


def test_a_websocket_over_tls_speaks_and_ends(tmp_path: Path) -> None:
    ca = trustme.CA()
    pair = ca.issue_cert("localhost", "127.0.0.1")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    pair.cert_chain_pems[0].write_to_path(chain)
    pair.private_key_pem.write_to_path(key)
    context = ssl.create_default_context()
    ca.configure_trust(context)
    flags = (*UNLIMITED, "--tls-cert", str(chain), "--tls-key", str(key))
    with PubSubProcess(tmp_path, *flags) as server:
        url = url_of(server).replace("ws://127.0.0.1", "wss://localhost")
        with connect(url, ssl=context, origin=Origin(f"https://localhost:{server.port}")) as opened:
            client = Talk(opened)
            client.ask("subscribe", channel="news")
            client.ask("publish", channel="news", data="x" * 30_000)
            assert client.take(1) == ["x" * 30_000]
            opened.send(b"binary")
            with pytest.raises(ConnectionClosed) as closed:
                client.next()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1003
