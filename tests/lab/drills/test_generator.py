"""The generator on a server of a few connections: what it sends, and what it records."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace
from math import inf

import pytest

from sluicegate.contracts.errors import Unavailable
from sluicegate.lab.arrivals import Even, Poisson
from sluicegate.lab.drills.generator import (
    ConnectionPool,
    Generator,
    LoadConnection,
    exchange,
    new_reader,
    play,
)
from sluicegate.lab.drills.load import DrillLoad, LoadStream, schedule
from sluicegate.lab.drills.record import SERVED, UNANSWERED, UNSENT, LoadRecord, slice_of
from sluicegate.system import now_us
from sluicegate.wire.resp import command
from tests.lab.drills.tiny_server import TinyServer

SPAN_US = 50_000


def load(port: int, **more: object) -> DrillLoad:
    stream = LoadStream(
        name="a",
        ports=(port,),
        commands=(command("GET", "k"),),
        arrivals=Even(1_000),
        timeout_us=10_000_000,
        connections=4,
    )
    return DrillLoad(streams=(replace(stream, **more),), span_us=SPAN_US, settle_us=5_000_000)  # type: ignore[arg-type]


def played(what: DrillLoad) -> LoadRecord:
    generator = Generator(what, schedule(what))
    try:
        generator.connect()
        generator.play(now_us())
    finally:
        generator.close()
    return generator.record()


def test_all_that_is_due_is_sent_and_every_reply_finds_its_request() -> None:
    with TinyServer(lambda parts: b"$1\r\nv\r\n") as server:
        record = played(load(server.port))
    part = slice_of(record, begin_us=0, end_us=SPAN_US)
    assert part.offered == part.good == len(server.requests) == 49
    assert record.unsent == record.lost == 0
    assert all(took_us > 0 for took_us in record.streams["a"].took_us)


def test_what_each_was_answered_is_kept_by_its_first_word() -> None:
    replies = {b"0": b"$1\r\nv\r\n", b"1": b"$-1\r\n", b"2": b"-BUSY later\r\n", b"3": b"*0\r\n"}
    with TinyServer(lambda parts: replies[parts[1]]) as server:
        commands = tuple(command("GET", name) for name in replies)
        record = played(load(server.port, commands=commands))
        keys = [parts[1] for _, parts in server.requests]
    words = slice_of(record, begin_us=0, end_us=SPAN_US).errors()
    assert words == {"NIL": keys.count(b"1"), "BUSY": keys.count(b"2")}
    assert record.streams["a"].results.count(SERVED) == keys.count(b"0") + keys.count(b"3")


def test_replies_on_one_connection_are_those_of_the_commands_in_their_order() -> None:
    with TinyServer(lambda parts: b"-%b x\r\n" % parts[1]) as server:
        commands = tuple(command("GET", f"W{number}") for number in range(20))
        what = load(server.port, commands=commands, connections=1, depth=100)
        generator = Generator(what, schedule(what))
        generator.connect()
        generator.play(now_us() - SPAN_US)  # all of it is due, so all is under way at once
        generator.close()
    plan, record = schedule(what), generator.record()
    stream = record.streams["a"]
    for at, number in enumerate(plan.commands):
        assert record.error_of(stream.results[at]) == f"W{number}"


def a_pool(connections: int, depth: int) -> ConnectionPool:
    """A pool whose connections lead nowhere."""
    pool = ConnectionPool(load(1, connections=connections, depth=depth).streams[0])
    for _ in range(connections):
        line = LoadConnection(socket.socket(), new_reader(), pool)
        line.sock.close()
        pool.connections.append(line)
        pool.idle.append(line)
    return pool


def test_a_line_that_owes_nothing_is_picked_before_any_other() -> None:
    pool = a_pool(3, depth=5)
    first = [pool.pick() for _ in range(3)]
    assert {id(line) for line in first} == {id(line) for line in pool.connections}
    pool.idle.append(pool.connections[2])
    assert pool.pick() is pool.connections[2]


def test_a_line_that_is_full_is_passed_over_and_of_full_ones_none_is_picked() -> None:
    pool = a_pool(3, depth=2)
    pool.idle.clear()
    pool.connections[1].pending.extend((1, 2))
    pool.pending = 2
    assert pool.connections[1] not in [pool.pick() for _ in range(6)]
    for line in pool.connections[::2]:
        line.pending.extend((3, 4))
    assert pool.pick() is None


def test_connections_are_spread_over_all_ports() -> None:
    with TinyServer() as one, TinyServer() as other:
        what = load(one.port, ports=(one.port, other.port))
        generator = Generator(what, schedule(what))
        generator.connect()
        generator.play(now_us() - SPAN_US)
        generator.close()
    assert len(one.requests) + len(other.requests) == 49
    assert min(len(one.requests), len(other.requests)) >= 20


def test_apart_each_command_has_a_connection_of_its_own_while_there_are_enough() -> None:
    with TinyServer() as server:
        what = load(server.port, connections=60)
        generator = Generator(what, schedule(what))
        generator.connect()
        generator.play(now_us() - SPAN_US)
        generator.close()
    assert set(server.writes) == {1}
    assert len({number for number, _ in server.requests}) == 49


def test_time_is_counted_from_when_a_request_was_due_so_a_stall_is_told_by_all_in_it() -> None:
    with TinyServer() as server:
        what = load(server.port, depth=100)
        opener = threading.Timer(0.2, server.gate.set)
        generator = Generator(what, schedule(what))
        generator.connect()
        server.gate.clear()
        begin_us = now_us()
        opener.start()
        try:
            generator.play(begin_us)
        finally:
            generator.close()
            opener.join()
        stream = generator.record().streams["a"]
    # None was answered before the gate was opened, and all were due before that.
    assert all(
        due_us + took_us >= 200_000
        for due_us, took_us in zip(stream.due_us, stream.took_us, strict=True)
    )
    assert stream.results.count(SERVED) == 49


def test_one_that_owes_nothing_is_asked_first_and_then_each_in_turn_up_to_its_depth() -> None:
    with TinyServer() as server:
        what = load(server.port, depth=2)
        generator = Generator(what, schedule(what))
        generator.connect()
        server.gate.clear()
        opener = threading.Timer(0.3, server.gate.set)
        opener.start()
        try:
            generator.play(now_us())
        finally:
            generator.close()
            opener.join()
        record = generator.record()
        connections = [number for number, _ in server.requests]
    assert {connections.count(number) for number in connections} == {2}
    assert len(connections) == 8
    assert record.unsent == record.streams["a"].results.count(UNSENT) == 41
    assert any("no connection" in reason for reason in record.void_reasons())


def test_together_what_is_due_at_once_leaves_in_one_write() -> None:
    with TinyServer() as server:
        what = load(server.port, arrivals=Even(60_000), together=True, depth=1_024)
        generator = Generator(what, schedule(what))
        generator.connect()
        generator.play(now_us() - SPAN_US)  # all of it is due
        generator.close()
        record = generator.record()
    assert record.streams["a"].results.count(SERVED) == 2_999
    assert len({number for number, _ in server.requests}) > 1  # when one is full, the next
    assert max(server.writes) > 50


def test_a_generator_that_begins_late_says_so() -> None:
    with TinyServer() as server:
        what = load(server.port)
        generator = Generator(what, schedule(what))
        generator.connect()
        generator.play(now_us() - SPAN_US)
        generator.close()
    assert any("late" in reason for reason in generator.record().void_reasons())


def test_a_connection_that_is_closed_leaves_its_requests_unanswered_and_others_go_on() -> None:
    with TinyServer(lambda parts: None if parts[1] == b"bad" else b"+OK\r\n") as server:
        commands = (*[command("GET", "bad")] * 4, command("GET", "k"))
        record = played(load(server.port, commands=commands, connections=55, depth=1))
        bad = [parts[1] for _, parts in server.requests].count(b"bad")
    assert bad > 30  # most of the connections
    assert record.lost == record.streams["a"].results.count(UNANSWERED) == bad
    assert record.unsent == 0


def test_no_answer_at_all_ends_with_the_time_that_is_waited_for_it() -> None:
    with TinyServer() as server:
        what = replace(load(server.port, depth=100), settle_us=50_000)
        generator = Generator(what, schedule(what))
        generator.connect()
        server.gate.clear()
        generator.play(now_us())
        generator.close()
        server.gate.set()
    stream = generator.record().streams["a"]
    assert set(stream.results) == {UNANSWERED}


def test_whoever_is_not_let_in_ends_the_run_with_what_was_said() -> None:
    with (
        TinyServer(lambda parts: b"-WRONGPASS no\r\n") as server,
        pytest.raises(Unavailable, match="WRONGPASS"),
    ):
        played(load(server.port, greeting=(command("AUTH", "x"),)))
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with pytest.raises(Unavailable, match="refused"):
            played(load(nobody.getsockname()[1]))


def test_a_server_that_hangs_up_on_who_asks_is_named() -> None:
    with (
        TinyServer(lambda parts: None) as server,
        socket.create_connection(("127.0.0.1", server.port)) as sock,
        pytest.raises(Unavailable, match="hung up"),
    ):
        exchange(sock, command("PING"))


def test_what_has_not_come_whole_is_told_from_nothing() -> None:
    reader = new_reader()
    reader.feed(b"$-1\r\n$1")
    assert reader.gets() is None
    assert reader.gets() is False


def test_each_load_has_a_process_and_all_begin_at_one_instant() -> None:
    began: list[int] = []
    with TinyServer() as server:
        what = load(server.port, arrivals=Poisson(500))
        records = play([what, replace(what, seed=1)], began.append)
    assert len(began) == 1
    for seed, record in enumerate(records):
        plan = schedule(replace(what, seed=seed))
        assert record.streams["a"].due_us == plan.due_us
        assert slice_of(record, begin_us=0, end_us=SPAN_US).p_us(0.5) < inf
    assert len(server.requests) == sum(len(record.streams["a"].due_us) for record in records)
