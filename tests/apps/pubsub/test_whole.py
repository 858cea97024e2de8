"""`sluicegate pubsub` as a whole: real processes, real sockets, real files."""

from __future__ import annotations

import http.client
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from sluicegate.apps.pubsub.account_limits import AccountLimits, read_limits
from sluicegate.contracts.errors import BadValue
from sluicegate.policies.access import token_digest
from tests.apps.pubsub.process import PubSubProcess, Subscriber
from tests.engines.child import PATIENCE_S, until

ENDED = "sluicegate_pubsub_connections_ended_total"
UNLIMITED = ("--channel-rate", "0", "--account-rate", "0")
ANN = "a" * 43
BOB = "b" * 43


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PubSubProcess]:
    with PubSubProcess(tmp_path, *UNLIMITED) as running:
        yield running


def test_what_is_published_reaches_each_subscriber_of_the_channel(server: PubSubProcess) -> None:
    with ExitStack() as stack:
        one, two, other = (
            stack.enter_context(Subscriber(server, channel))
            for channel in ("news", "news", "sport")
        )
        positions = [server.accept("news", {"n": n}) for n in range(3)]
        server.accept("sport", "goal")
        for subscriber in (one, two):
            assert subscriber.take(3) == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert other.take(1) == ["goal"]
    assert positions == sorted(set(positions))


def test_any_json_arrives_as_it_was_sent(server: PubSubProcess) -> None:
    values: list[object] = [
        None,
        "a\nb\r\n\nc",
        "\u2028 é 😀",
        [],
        {"": {"id": "x"}},
        10**30,
        -0.5,
        "data: x",
    ]
    with Subscriber(server, "any") as subscriber:
        for value in values:
            server.accept("any", value)
        assert subscriber.take(len(values)) == values


def test_a_subscriber_resumes_where_it_was(server: PubSubProcess) -> None:
    positions = [server.accept("news", n) for n in range(5)]
    server.accept("other", "between")
    with Subscriber(server, "news", after=positions[1]) as subscriber:
        server.accept("news", 5)
        assert subscriber.take(4) == [2, 3, 4, 5]
    with Subscriber(server, "news", after=0) as subscriber:
        assert subscriber.take(6) == [0, 1, 2, 3, 4, 5]


def test_history_is_read_in_pages(server: PubSubProcess) -> None:
    positions = [server.accept("news", n) for n in range(4)]
    page = server.history("news", after=positions[0])
    assert [one["data"] for one in page["messages"]] == [1, 2, 3]
    assert page["cut"] == 0
    status, page = server.ask("/v1/channels/news/messages?count=2")
    assert status == 200
    assert [one["position"] for one in page["messages"]] == positions[:2]
    assert server.history("nobody")["messages"] == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_was_accepted_survives_the_process(tmp_path: Path, how: signal.Signals) -> None:
    with PubSubProcess(tmp_path, *UNLIMITED) as server:
        with ThreadPoolExecutor(8) as publishers:
            list(publishers.map(lambda n: server.accept("news", n), range(100)))
        before = server.history("news")["messages"]
        server.signal(how)
        server.child.wait(60)
    with PubSubProcess(tmp_path, *UNLIMITED) as server:
        assert server.history("news")["messages"] == before
        with Subscriber(server, "news", after=before[49]["position"]) as subscriber:
            assert subscriber.take(50) == [one["data"] for one in before[50:]]
        assert server.accept("news", "more") > before[-1]["position"]


def test_a_kill_loses_nothing_that_was_accepted(tmp_path: Path) -> None:
    """Publishers go on until the process is killed under them; then all that it accepted is there,
    once, and nothing else but what was under way."""
    accepted: dict[int, str] = {}
    sent: set[str] = set()

    def publish(server: PubSubProcess, who: int) -> None:
        for n in range(100_000):
            data = f"{who}/{n}"
            sent.add(data)
            try:
                status, reply = server.publish("news", data)
            except OSError:
                return
            assert status == 200
            accepted[reply["position"]] = data

    with PubSubProcess(tmp_path, *UNLIMITED) as server, ThreadPoolExecutor(4) as publishers:
        ends = [publishers.submit(publish, server, who) for who in range(4)]
        until(lambda: len(accepted) >= 200, "200 accepted messages")
        server.signal(signal.SIGKILL)
        for end in ends:
            end.result()
    found: dict[int, str] = {}
    with PubSubProcess(tmp_path, *UNLIMITED) as server:
        while page := server.history("news", after=max(found, default=0))["messages"]:
            found |= {one["position"]: one["data"] for one in page}
    assert accepted.items() <= found.items()
    assert len(set(found.values())) == len(found) <= len(accepted) + 4
    assert set(found.values()) <= sent


def test_history_without_its_segments_does_not_start(tmp_path: Path) -> None:
    """It began as "0 messages" without a word."""
    with PubSubProcess(tmp_path) as server:
        server.accept("c", 1)
        assert server.end() == 0
    for segment in (tmp_path / "history").glob("*.log"):
        segment.unlink()
    with PubSubProcess(tmp_path, wait=False) as server:
        assert server.child.wait(PATIENCE_S) == 1
        assert "restore the segments, or delete usage.sqlite*" in server.log.read_text()
    for file in (tmp_path / "history").glob("usage.sqlite*"):
        file.unlink()
    with PubSubProcess(tmp_path) as server:
        server.accept("c", 2)


def test_the_history_says_what_it_has_cut(tmp_path: Path) -> None:
    with PubSubProcess(tmp_path, *UNLIMITED, "--history-bytes", "20_000") as server:
        positions = [server.accept("news", "x" * 1_000) for _ in range(40)]
        page = server.history("news")
        kept = [one["position"] for one in page["messages"]]
        assert 0 < len(kept) < 20
        assert kept == positions[-len(kept) :]
        assert page["cut"] == positions[-len(kept) - 1]
        cut = server.metric("sluicegate_pubsub_history_cut_total", bound="bytes")
        assert cut == 40 - len(kept)
        with Subscriber(server, "news", after=positions[0]) as subscriber:
            name, gap = subscriber.next()
            assert name == "gap"
            assert gap == {"after": positions[0], "before": kept[0], "lost": None}
            assert len(subscriber.take(len(kept))) == len(kept)
        with Subscriber(server, "news", after=page["cut"]) as subscriber:  # nothing was missed
            assert len(subscriber.take(len(kept))) == len(kept)


def test_old_messages_leave_the_history(tmp_path: Path) -> None:
    with PubSubProcess(tmp_path, *UNLIMITED, "--history-s", "1") as server:
        position = server.accept("news", "old")
        until(lambda: not server.history("news")["messages"], "the history to be cut by age")
        assert server.history("news")["cut"] == position
        assert server.metric("sluicegate_pubsub_channels") == 0


def test_a_position_of_another_history_is_a_gap(server: PubSubProcess) -> None:
    first = server.accept("news", "first")
    with Subscriber(server, "news", after=first + 1_000) as subscriber:
        assert subscriber.next() == ("gap", {"after": first + 1_000, "before": first, "lost": None})
        assert subscriber.take(1) == ["first"]


def test_a_publish_costs_one_and_one_for_each_subscriber(tmp_path: Path) -> None:
    flags = ("--channel-rate", "0", "--account-rate", "40")
    with PubSubProcess(tmp_path, *flags) as server, ExitStack() as stack:
        for _ in range(9):
            stack.enter_context(Subscriber(server, "wide"))
        accepted = refused = 0
        while not refused:
            status, reply = server.publish("wide", "x")
            assert status in (200, 429)
            accepted, refused = accepted + (status == 200), refused + (status == 429)
            assert accepted < 1_000
        assert reply["reason"] == "suppressed"
        assert server.metric("sluicegate_pubsub_refused_total", reason="suppressed") == 1


def test_an_account_over_its_rate_is_held_to_it_and_another_is_not(tmp_path: Path) -> None:
    access = access_of(tmp_path)
    flags = ("--access", access, "--channel-rate", "0", "--account-rate", "20")
    with PubSubProcess(tmp_path, *flags) as server:
        replies = [server.publish("news", n, ANN) for n in range(300)]
        refused = [reply for status, reply in replies if status == 429]
        assert refused
        assert {one["reason"] for one in refused} == {"suppressed"}
        accepted = [n for n, (status, _) in enumerate(replies) if status == 200]
        page = server.history("news", token=ANN)
        assert [one["data"] for one in page["messages"]] == accepted
        assert [server.publish("news", n, BOB)[0] for n in range(5)] == [200] * 5


def test_each_account_has_the_limit_that_the_file_says_now(tmp_path: Path) -> None:
    access, limits = access_of(tmp_path), tmp_path / "limits.toml"
    limits.write_text("[accounts.ann]\nrate = 100000\n")
    flags = ("--access", access, "--limits", str(limits), "--account-rate", "10")

    def refused(server: PubSubProcess, token: str) -> int:
        return sum(server.publish("news", n, token)[0] == 429 for n in range(100))

    with PubSubProcess(tmp_path, *flags, "--channel-rate", "0") as server:
        assert refused(server, ANN) == 0
        assert refused(server, BOB) > 0
        limits.write_text("[accounts.ann]\nrate = 10\nburst = 20\n")
        server.signal(signal.SIGHUP)
        until(lambda: refused(server, ANN), "ann to be held")
        limits.write_text("[accounts.ann]\nrate = -1\n")
        server.signal(signal.SIGHUP)
        until(lambda: "the limits stay as they are" in server.log.read_text(), "the complaint")
        assert refused(server, ANN) > 0


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[accounts.ann]\nrates = 1\n", "accounts.ann.rates"),
        ("[accounts.ann]\nrate = true\n", "accounts.ann.rate"),
        ("[accounts.ann]\nburst = -5\n", "accounts.ann.burst"),
        ("[account.ann]\n", "account"),
        ("accounts = 3\n", "accounts"),
        ("[accounts\n", "--limits"),
    ],
)
def test_limits_that_cannot_be_used_are_named(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "limits.toml"
    file.write_text(text)
    with pytest.raises(BadValue, match=named):
        read_limits(str(file))


def test_a_channel_over_its_rate_is_refused_in_its_own_name(tmp_path: Path) -> None:
    with PubSubProcess(tmp_path, "--channel-rate", "3") as server:
        replies = [server.publish("busy", n) for n in range(200)]
        refused = [reply for status, reply in replies if status == 429]
        assert refused
        assert {one["reason"] for one in refused} == {"channel_limited"}
        assert server.publish("quiet", 1)[0] == 200


def test_channels_belong_to_their_account(tmp_path: Path) -> None:
    with PubSubProcess(tmp_path, "--access", access_of(tmp_path)) as server:
        with (
            Subscriber(server, "news", token=ANN) as ann,
            Subscriber(server, "news", token=BOB) as bob,
        ):
            assert server.publish("news", "of bob", BOB)[0] == 200
            assert server.publish("news", "of ann", ANN)[0] == 200
            assert (ann.take(1), bob.take(1)) == (["of ann"], ["of bob"])
        assert server.publish("news", "x")[0] == 401
        assert server.publish("news", "x", "r" * 43)[0] == 403  # may only read
        with Subscriber(server, "news", token="r" * 43) as reader:
            assert reader.status == 200


def test_a_subscriber_that_never_reads_costs_bounded_memory_and_hears_of_its_loss(
    tmp_path: Path,
) -> None:
    """On a slow machine it takes nothing for `write_stall_s_max`, and is cut off: it resumes."""
    count, text = 600, "x" * 40_000  # far more than sockets and history hold
    with (
        PubSubProcess(tmp_path, *UNLIMITED, "--history-bytes", "500_000") as server,
        ExitStack() as stack,
        Subscriber(server, "news") as quick,
    ):
        slow = stack.enter_context(Subscriber(server, "news"))
        positions = []
        for n in range(count):
            positions.append(server.accept("news", [n, text]))
            assert quick.take(1)[0][0] == n  # the control: it misses nothing
        assert server.metric("sluicegate_pubsub_history_bytes") <= 500_000
        delivered = lost = 0
        while delivered + lost < count:
            try:
                name, value = slow.next()
            except (EOFError, ConnectionError):
                assert server.metric(ENDED, why="not_reading") > 0
                last = positions[delivered + lost - 1] if delivered + lost else 0
                slow = stack.enter_context(Subscriber(server, "news", after=last))
                continue
            if name == "gap":
                between = [p for p in positions if value["after"] < p < value["before"]]
                assert value["lost"] in (len(between), None)  # nobody can tell who resumes
                lost += len(between)
            else:
                assert value["position"] == positions[delivered + lost]
                delivered += 1
        assert lost > 0
        assert delivered + lost == count


def test_who_goes_away_is_forgotten(server: PubSubProcess) -> None:
    with ExitStack() as stack:
        for n in range(20):
            stack.enter_context(Subscriber(server, f"channel-{n}"))
        assert server.metric("sluicegate_pubsub_channels") == 20
    until(lambda: server.metric("sluicegate_pubsub_channels") == 0, "channels to be forgotten")


def test_what_cannot_be_used_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with PubSubProcess(tmp_path, *UNLIMITED, "--channels-max", "1") as server:
        assert server.publish("no/pe", 1)[0] == 404
        assert server.publish("-", 1)[0] == 400
        assert server.publish("c" * 129, 1)[0] == 400
        assert server.ask("/v1/channels/news/messages", {"dat": 1})[0] == 400
        assert server.publish("news", "x" * 70_000)[0] == 413
        assert server.ask("/v1/channels/news/events?after=-1")[0] == 400
        server.accept("news", 1)
        status, reply = server.publish("more", 1)
        assert (status, reply["reason"]) == (429, "channels_full")
        assert server.metric("sluicegate_pubsub_refused_total", reason="channels_full") == 1
        with Subscriber(server, "other") as reader:  # readers are not refused for it
            assert reader.status == 200


def test_numbers_and_texts_that_json_cannot_write_never_reach_the_history(tmp_path: Path) -> None:
    path = "/v1/channels/news/messages"
    with PubSubProcess(tmp_path, *UNLIMITED) as server:
        for data in ("1e400", '"\\ud800"', "[" * 900 + "]" * 900):
            status = _ask_raw(server, path, f'{{"data": {data}}}')
            assert status in (200, 400)
    with PubSubProcess(tmp_path, *UNLIMITED) as server:  # it can be read again
        server.accept("news", 1)


def _ask_raw(server: PubSubProcess, path: str, body: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


def access_of(folder: Path) -> str:
    callers = [(ANN, "ann", '"publish", "subscribe"'), (BOB, "bob", '"publish", "subscribe"')]
    callers.append(("r" * 43, "reader", '"subscribe"'))
    file = folder / "accounts.toml"
    file.write_text(
        "\n".join(
            f'[[callers]]\nname = "{name}"\ntoken_sha256 = "{token_digest(token)}"\n'
            f"grants = [{grants}]\n"
            for token, name, grants in callers
        )
    )
    return str(file)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("connections = 5", (100, 200)),
        ("burst = 7", (100, 7)),
        ("rate = 3", (3, 3)),
        ("rate = 3\nburst = 7", (3, 7)),
        ("rate = 0", None),
    ],
)
def test_account_without_rate_goes_by_the_flags(
    tmp_path: Path, text: str, expected: tuple[int, int] | None
) -> None:
    file = tmp_path / "limits.toml"
    file.write_text(f"[accounts.ann]\n{text}\n")
    assert AccountLimits(str(file), 100, 200).limit_of("ann") == expected
