"""Pictures of callers: how they ask again, stop asking, and choose whom they ask."""

from __future__ import annotations

from random import Random
from typing import Final

from sluicegate.kernels.backoff import FULL, NONE, Backoff, BackoffSettings
from sluicegate.kernels.breaker import (
    CLOSED,
    FAILURE,
    HALF_OPEN,
    OPEN,
    REFUSED,
    SUCCESS,
    Circuit,
    CircuitSettings,
)
from sluicegate.kernels.client_throttle import ThrottleWindow
from sluicegate.kernels.hash_ring import Rendezvous, digest
from sluicegate.kernels.outlier import HostStats, SweepSettings, sweep
from sluicegate.kernels.retry_budget import RetryBudget
from sluicegate.kernels.two_choices import HostLoad, LoadSettings, choose
from tests.site.concepts.panel import Axis, Drawing, Point, Sheet

SECOND: Final = 1_000_000


def backoff() -> Drawing:
    """When the calls of clients that failed together come back."""
    clients = 200
    sheet = Sheet("Backoff: when callers that failed together come back", 110, 110)
    peaks: list[int] = []
    for jitter, kind, name in ((NONE, "b", "no jitter"), (FULL, "a", "full jitter")):
        rule = Backoff(BackoffSettings(jitter=jitter))
        chance = Random(2)
        bins = [0] * 80
        for _ in range(clients):
            at = 0
            for attempt in range(6):
                at += rule.wait_us(attempt, chance.random())
                if at < 4 * SECOND:
                    bins[at * 20 // SECOND] += 1
        panel = sheet.panel(
            name, Axis(4, "seconds after the failure"), Axis(200, "calls within 50 ms")
        )
        for number, count in enumerate(bins):
            if count:
                panel.bar(kind, number / 20 + 0.005, number / 20 + 0.045, count)
        peaks.append(max(bins[10:]))
    return sheet.drawing(
        f"{clients} callers fail at second 0, and each tries again up to six times with the "
        f"default base of 100 ms. From half a second on at most {peaks[0]} calls come within 50 "
        f"ms without jitter, {peaks[1]} with full jitter."
    )


def breaker() -> Drawing:
    """The states over time, and what becomes of calls."""
    circuit = Circuit(CircuitSettings())
    chance = Random(4)
    calls: dict[str, list[Point]] = {"answered": [], "failed": [], "refused": []}
    states: list[tuple[int, int]] = [(0, CLOSED)]
    span = 90
    for at in range(0, span * SECOND, SECOND // 5):
        down = 10 * SECOND <= at < 50 * SECOND
        generation = circuit.enter(at)
        if generation == REFUSED:
            calls["refused"].append((at / SECOND, 1.0))
        else:
            if circuit.state != states[-1][1]:
                states.append((at, circuit.state))
            name = "failed" if down else "answered"
            calls[name].append((at / SECOND, 2.0 if down else 3.0))
            circuit.leave(generation, FAILURE if down else SUCCESS, 0, at, chance.random())
        if circuit.state != states[-1][1]:
            states.append((at, circuit.state))
    sheet = Sheet("Breaker: its states, and what becomes of calls", 150)
    panel = sheet.panel(
        "what becomes of 5 calls a second",
        Axis(span, "seconds"),
        Axis(3.5, "", 0, [(3, "answered"), (2, "failed"), (1, "refused")]),
    )
    ends = [*(at for at, _ in states[1:]), span * SECOND]
    for (at, state), end in zip(states, ends, strict=True):
        if state == OPEN:
            panel.band("b", at / SECOND, end / SECOND)
        elif state == HALF_OPEN:
            panel.band("c", at / SECOND, end / SECOND)
    for kind, name in (("a", "answered"), ("b", "failed"), ("quiet", "refused")):
        panel.dots(kind, calls[name], f"{len(calls[name])} {name}")
    opened = [
        (end - at) / SECOND for (at, state), end in zip(states, ends, strict=True) if state == OPEN
    ]
    back = next(x for x, _ in calls["answered"] if x > 50)
    spans = ", ".join(f"{each:.0f}" for each in opened)
    return sheet.drawing(
        "5 calls a second go to a backend that answers none from second 10 to 50. With the "
        "default settings the breaker opens (shaded) after five failures in a row, and again "
        f"after each failed probe, for {spans} s. Of {sum(map(len, calls.values()))} calls only "
        f"{len(calls['failed'])} reach the backend in the 40 s in which it answers none; that it "
        f"answers again is found at the next probe, at second {back:.0f}."
    )


def client_throttle() -> Drawing:
    """What is asked, sent and accepted."""
    window = ThrottleWindow()
    chance = Random(6)
    span = 70
    sent = [0] * span
    accepted = [0] * span
    for at in range(0, span * SECOND, SECOND // 100):
        second = at // SECOND
        if window.admit(chance.random(), at):
            sent[second] += 1
            window.record_end(at)
            if not 10 <= second < 40 or accepted[second] < 20:
                accepted[second] += 1
                window.record_accept(at)
    sheet = Sheet("Client throttle: what is asked, sent and accepted", 200)
    panel = sheet.panel("calls a second", Axis(span, "seconds"), Axis(125))
    panel.band("quiet", 10, 40, "the service accepts 20 a second")
    panel.line("quiet", [(0, 100), (span, 100)], "asked")
    panel.steps("b", [(float(at), float(count)) for at, count in enumerate(sent)], "sent")
    panel.steps("a", [(float(at), float(count)) for at, count in enumerate(accepted)], "accepted")
    mean = sum(sent[25:40]) / 15
    return sheet.drawing(
        "100 calls a second are asked for, and from second 10 to 40 the service accepts 20 of "
        f"them. With the defaults it is soon sent {mean:.0f} a second, about two for each that it "
        "accepts; the others are refused at the caller."
    )


def retry_budget() -> Drawing:
    """What a backend is asked that answers nothing."""
    budget = RetryBudget()
    span = 50
    loads = {"three attempts each": [0] * span, "with a budget": [0] * span}
    without, within = loads.values()
    for at in range(0, span * SECOND, SECOND // 100):
        second = at // SECOND
        budget.deposit(at)
        without[second] += 1
        within[second] += 1
        if 10 <= second < 30:
            without[second] += 2
            for _ in range(2):
                if not budget.withdraw(at):
                    break
                within[second] += 1
    sheet = Sheet("Retry budget: what a failing backend is asked", 200)
    panel = sheet.panel("calls and retries a second", Axis(span, "seconds"), Axis(350))
    panel.band("quiet", 10, 30, "nothing is answered")
    for kind, (name, load) in zip("ba", loads.items(), strict=True):
        panel.steps(kind, [(float(at), float(count)) for at, count in enumerate(load)])
        panel.note(31, 290 if kind == "b" else 130, name, kind)
    return sheet.drawing(
        "100 calls a second, each tried up to three times; from second 10 to 30 all fail. "
        f"Without a budget the backend is asked {without[20]} times a second; the default one is "
        f"spent within a second, {within[10]} calls, and has something again after its window of "
        f"10 s: {sum(within[10:30]) / 20:.0f} a second on average."
    )


def two_choices() -> Drawing:
    """How full hosts are, the fullest first."""
    hosts, calls = 100, 1_000
    random = Random(9)
    one = [0] * hosts
    for _ in range(calls):
        one[random.randrange(hosts)] += 1
    loads = [HostLoad(LoadSettings()) for _ in range(hosts)]
    for _ in range(calls):
        loads[choose(loads, 0, random.random(), random.random())].start(0)
    two = [load.inflight for load in loads]
    sheet = Sheet("Two choices: how full the hosts are", 200)
    panel = sheet.panel(
        "calls in flight on each host",
        Axis(hosts, "hosts, the fullest first"),
        Axis(max(one) + 1),
    )
    panel.bound(calls / hosts, "the mean")
    for kind, counts in (("b", one), ("a", two)):
        points = [(float(at), float(count)) for at, count in enumerate(sorted(counts)[::-1])]
        panel.steps(kind, [*points, (hosts, points[-1][1])])
    panel.note(8, max(one) - 5, "drawn once", "b")
    panel.note(6, calls / hosts - 3, "the better of two", "a")
    return sheet.drawing(
        f"{calls:,} calls on {hosts} equal hosts, none of which has ended: drawn at random the "
        f"fullest host has {max(one)} and the emptiest {min(one)}, by two choices {max(two)} and "
        f"{min(two)}."
    )


def outlier() -> Drawing:
    """Who is left out, sweep by sweep."""
    chance = Random(15)
    settings = SweepSettings()
    hosts = [HostStats(f"host {number}") for number in range(10)]
    bad, begin, end, span = 3, 30, 150, 300
    spans: list[tuple[int, int, int]] = []
    failed = 0
    for second in range(span):
        for number, host in enumerate(hosts):
            host.requests = 0 if host.ejected else 100
            rate = 0.3 if number == bad and begin <= second < end else 0.01
            host.failures = sum(chance.random() < rate for _ in range(host.requests))
            failed += host.failures if begin <= second < end else 0
        for verdict in sweep(hosts, settings, second * SECOND, chance.random()):
            number = next(at for at, host in enumerate(hosts) if host.name == verdict.name)
            host = hosts[number]
            if verdict.ejected:
                spans.append((number, second, verdict.until_us // SECOND))
            host.ejected = verdict.ejected
            host.until_us, host.ejections = verdict.until_us, verdict.ejections
    sheet = Sheet("Outlier: which of ten hosts is left out", 200)
    panel = sheet.panel(
        "hosts, each of 100 calls a second",
        Axis(span, "seconds"),
        Axis(10, "", 0, [(at + 0.5, f"host {at}") for at in range(10)]),
    )
    panel.bar("stays", begin, end, bad + 1.0, bad)
    for number, since, until in spans:
        panel.bar("b", since, until, number + 0.7, number + 0.3)
    panel.label(bad + 0.5, "fails at 30%")
    out = [until - since for number, since, until in spans if number == bad]
    others = sum(number != bad for number, _, _ in spans)
    first = next(since for number, since, _ in spans if number == bad) - begin
    return sheet.drawing(
        f"Host {bad} fails 30% of its calls from second {begin} to {end} (grey), the others 1%. It "
        f"is left out (orange) within {first + 1} s, then for {', '.join(map(str, out))} s, "
        f"longer each time that it is found again; of the others {others or 'none'} is. "
        f"{100 * failed / (end - begin) / 1_000:.1f}% of all calls fail meanwhile, in place of "
        "3.9%."
    )


def hash_ring() -> Drawing:
    """Which keys move when a node joins."""
    keys = [f"key-{number}" for number in range(120)]
    nodes = ["a", "b", "c", "d", "e"]
    before = Rendezvous(dict.fromkeys(nodes[:4], 1.0))
    after = Rendezvous(dict.fromkeys(nodes, 1.0))
    sheet = Sheet("Hash ring: which keys move when a fifth node joins", 150)
    rows = [(2, "four nodes"), (1, "a fifth joins"), (0, "hash mod 5")]
    panel = sheet.panel(
        f"{len(keys)} keys, each in the colour of the node it goes to; grey ones stay",
        Axis(len(keys), "keys", 0, []),
        Axis(3, "", 0, []),
    )
    moved = [0, 0]
    for at, key in enumerate(keys):
        was, now = before.owner(key), after.owner(key)
        by_mod = nodes[digest(key) % 5]
        moved[0] += was != now
        moved[1] += nodes[digest(key) % 4] != by_mod
        panel.bar(was, at, at + 0.85, 2.85, 2.15)
        panel.bar("stays" if was == now else now, at, at + 0.85, 1.85, 1.15)
        stays = nodes[digest(key) % 4] == by_mod
        panel.bar("stays" if stays else by_mod, at, at + 0.85, 0.85, 0.15)
    for row, name in rows:
        panel.label(row + 0.5, name)
    return sheet.drawing(
        f"When a fifth node joins four, {moved[0]} of {len(keys)} keys move, all of them to it; "
        f"of a hash divided by the number of nodes {moved[1]} would move, between all."
    )
