"""Signed tokens of `sluicegate pubsub`: real processes, WebSocket, HTTP and event streams."""

from __future__ import annotations

import http.client
import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from sluicegate.apps.pubsub.session import SUBPROTOCOL
from sluicegate.apps.pubsub.settings import PubSubSettings
from sluicegate.contracts.errors import BadValue
from sluicegate.service.settings import settings_from
from tests.apps.pubsub.process import PubSubProcess, Subscriber
from tests.apps.pubsub.socket import Talk, talk, url_of
from tests.apps.pubsub.test_whole import ANN
from tests.apps.pubsub.tokens import secret_of, signed, token_server
from tests.engines.child import PATIENCE_S


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PubSubProcess]:
    with token_server(tmp_path_factory.mktemp("tokens")) as running:
        yield running


@contextmanager
def browser(server: PubSubProcess, token: str, **options: Any) -> Iterator[Talk]:
    """A connection as a page makes it."""
    offered = [Subprotocol(SUBPROTOCOL), Subprotocol(f"bearer.{token}")]
    with connect(
        url_of(server), subprotocols=offered, open_timeout=PATIENCE_S, **options
    ) as connection:
        yield Talk(connection)


def closing(client: Talk) -> tuple[int, str]:
    """Code and reason of a connection that the server closes."""
    try:
        while True:
            client.connection.recv(timeout=PATIENCE_S)
    except ConnectionClosed as closed:
        end = closed.rcvd
    assert end is not None
    return end.code, end.reason


def test_token_of_client_shares_channels_with_its_account(server: PubSubProcess) -> None:
    with browser(server, signed()) as page, talk(server, ANN) as ann:
        page.ask("subscribe", channel="shared")
        assert ann.ask("publish", channel="shared", data=1)["type"] == "accepted"
        assert page.take(1) == [1]


ASKS: dict[str, tuple[str, dict[str, object]]] = {
    "publish": ("publish", {"data": 1}),
    "subscribe": ("subscribe", {}),
    "presence": ("enter", {"member": "mia"}),
    "history": ("read", {}),
}


@pytest.mark.parametrize("right", sorted(ASKS))
def test_each_operation_needs_its_right_in_channel(server: PubSubProcess, right: str) -> None:
    with browser(server, signed({"mine:*": [right]})) as page:
        for one, (kind, fields) in ASKS.items():
            told = page.ask(kind, channel="mine:1", **fields)
            assert (told["type"] == "error") is (one != right), told
            told = page.ask(kind, channel="other:1", **fields)
            assert told["problem"]["status"] == 403


def test_subscribe_from_position_needs_history(server: PubSubProcess) -> None:
    with browser(server, signed({"news": ["subscribe"]})) as page:
        assert page.ask("subscribe", channel="news", after=0)["problem"]["status"] == 403
    status, _ = server.ask(
        "/v1/channels/news/events?after=0", token=signed({"news": ["subscribe"]})
    )
    assert status == 403


def test_http_operations_need_their_right_in_channel(server: PubSubProcess) -> None:
    token = signed({"mine": ["publish"]})
    assert server.publish("mine", 1, token)[0] == 200
    assert server.publish("other", 1, token)[0] == 403
    for path in ("messages", "presence", "events"):
        assert server.ask(f"/v1/channels/mine/{path}", token=token)[0] == 403


def test_client_enters_no_member_but_itself(server: PubSubProcess) -> None:
    with browser(server, signed()) as page:
        assert page.ask("enter", channel="c", member="leo")["problem"]["status"] == 403
        assert page.ask("enter", channel="c", member="mia")["type"] == "entered"
    path = "/v1/channels/c/presence/leo"
    assert server.ask(path, {}, token=signed(), method="PUT")[0] == 403


def test_socket_ends_with_4401_when_token_expires(server: PubSubProcess) -> None:
    with browser(server, signed(for_s=2.0)) as page:
        page.ask("subscribe", channel="news")
        assert closing(page) == (4401, "the token has expired")


def test_event_stream_ends_with_event_when_token_expires(server: PubSubProcess) -> None:
    with Subscriber(server, "news", token=signed({"news": ["subscribe"]}, for_s=2.0)) as stream:
        assert stream.status == 200
        name, data = stream.next()
        assert (name, data) == ("end", {"code": 4401, "reason": "the token has expired"})


def test_renewed_socket_outlives_its_first_token(server: PubSubProcess) -> None:
    first = time.time() + 2.0
    with browser(server, signed(exp=first)) as page:
        page.ask("subscribe", channel="renewed")
        told = page.ask("auth", token=signed(for_s=600))
        assert (told["type"], told["client"]) == ("authenticated", "mia")
        assert 500 < told["expires_in"] <= 600
        while time.time() < first + 1.0:
            assert page.ask("members", channel="renewed")["members"] == []
        server.accept("renewed", 1, ANN)
        assert page.take(1) == [1]


@pytest.mark.parametrize(
    ("make", "status"),  # a token is made when it is used, because it expires
    [
        (lambda: signed(sub="leo"), 400),
        (lambda: signed(account="bob"), 400),
        (lambda: signed(key="x" * 43), 401),
        (lambda: signed(for_s=-1), 401),
        (lambda: ANN, 400),
    ],
    ids=["other_client", "other_account", "other_key", "expired", "account_itself"],
)
def test_invalid_renewal_changes_nothing(
    server: PubSubProcess, make: Callable[[], str], status: int
) -> None:
    token = make()
    with browser(server, signed()) as page:
        told = page.ask("auth", token=token)
        assert told["problem"]["status"] == status
        assert token not in json.dumps(told)
        assert page.ask("publish", channel="c", data=1)["type"] == "accepted"


def test_renewal_with_fewer_rights_ends_subscriptions(server: PubSubProcess) -> None:
    with browser(server, signed()) as page, talk(server, ANN) as ann:
        page.ask("subscribe", channel="gone")
        page.ask("enter", channel="gone", member="mia")
        page.ask("subscribe", channel="kept")
        sent = page.send("auth", token=signed({"kept": ["subscribe"]}))
        told = page.next()
        while told["type"] != "unsubscribed":
            told = page.next()
        assert (told["channel"], told["id"], told["problem"]["status"]) == ("gone", None, 403)
        assert page.next()["id"] == sent
        while ann.ask("members", channel="gone")["members"]:
            pass
        ann.ask("publish", channel="gone", data=1)
        ann.ask("publish", channel="kept", data=2)
        assert page.take(1) == [2]


def test_invalid_token_of_page_is_closed_with_4401(server: PubSubProcess) -> None:
    for token, reason in (
        (signed(for_s=-1), "the token has expired"),
        (signed(key="x" * 43), "the token is signed by no key that is known here"),
        ("x" * 43, "this token is nobody's"),
    ):
        with browser(server, token) as page:
            assert closing(page) == (4401, reason)
    assert server.metric("sluicegate_pubsub_sockets") == 0


def test_account_without_grant_gives_none_to_its_tokens(server: PubSubProcess) -> None:
    assert server.publish("news", 1, signed(account="reader"))[0] == 403
    assert server.ask("/v1/channels/news/messages", token=signed(account="reader"))[0] == 200
    assert server.publish("news", 1, signed(account="nobody"))[0] == 401


def test_tokens_end_with_their_account_and_their_secret(tmp_path: Path) -> None:
    with token_server(tmp_path) as server, browser(server, signed()) as page:
        page.ask("subscribe", channel="news")
        secret_of(tmp_path, "another secret, that is as long as it must be")
        server.signal(signal.SIGHUP)
        assert closing(page) == (4401, "the key of the token was withdrawn")
        assert server.publish("news", 1, signed())[0] == 401
        secret_of(tmp_path)
        server.signal(signal.SIGHUP)
        while server.publish("news", 1, signed())[0] != 200:
            pass
        with browser(server, signed()) as again:
            again.ask("subscribe", channel="news")
            file = tmp_path / "accounts.toml"
            file.write_text(file.read_text().replace('"ann"', '"carl"'))
            server.signal(signal.SIGHUP)
            assert closing(again) == (4403, "access was revoked or reduced")


def test_token_in_query_of_loopback_opens_streams_alone(server: PubSubProcess) -> None:
    token = signed()
    with connect(f"{url_of(server)}?access_token={token}") as connection:
        assert Talk(connection).ask("members", channel="c")["type"] == "members"
    stream = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    stream.request("GET", f"/v1/channels/c/events?after=0&access_token={token}")
    assert stream.getresponse().status == 200
    stream.close()
    for path, status in (
        (f"/v1/channels/c/messages?access_token={token}", 400),
        (f"/v1/channels/c/events?access_token={token}&access_token={token}", 400),
        ("/v1/channels/c/events?access_token=x.y.z", 401),
    ):
        assert server.ask(path)[0] == status
    assert server.ask(f"/v1/channels/c/events?access_token={token}", token=ANN)[0] == 400


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--origins", "*"), "--origins"),
        (("--origins", "app.example.com"), "--origins"),
        (("--origins", "https://app.example.com/path"), "--origins"),
        (("--jwt-secret", "k"), "--jwt"),
        (("--jwt-issuer", "me"), "--jwt-issuer"),
        (("--access", "a", "--jwt-keys", "http://keys.example.com/jwks"), "--jwt-keys"),
    ],
)
def test_unsafe_settings_are_invalid(flags: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        settings_from(PubSubSettings, *flags)
