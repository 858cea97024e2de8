"""Board rates: two boards of each dispatcher, and the time between them, make one picture.

Counts become rates, summed over dispatchers; of levels that cannot be added (a price, a delay, a
ratio) the worst counts. Pure: boards in, JSON-able values out. A dispatcher that restarted counts
from zero; one that was not there before has no rates yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sluicegate.command_line.boards import BoardSample

_US: Final = 1e6
Board = Mapping[str, Any]


def picture(before: Sequence[BoardSample], after: Sequence[BoardSample]) -> dict[str, Any]:
    """What the dispatchers do, between these two looks at them."""
    earlier = {sample.url: sample.board for sample in before}
    pairs = [
        (earlier.get(sample.url), sample.board) for sample in after if sample.board is not None
    ]
    boards = [board for _, board in pairs]
    return {
        "dispatchers": [_dispatcher(sample) for sample in after],
        "work": _rates_of(pairs, "stack", ("entered", "admitted", "refused"), ("under_way",)),
        "callers": _callers(pairs),
        "refusals": _refusals(pairs),
        "flows": _flows(pairs),
        "stress": _stress(boards),
        "slow": _slow(pairs),
        "classes": _classes(pairs),
        "queue": _queue(boards),
        "latency": _latency(pairs),
        "engine": _engine(pairs),
        "shield": _rates_of(
            pairs,
            "shield",
            ("looked", "served", "joined", "flown", "stale_served"),
            ("cached", "cached_bytes", "waiting"),
        ),
        "hot": _hot(pairs),
        "store": _outage(boards, "store"),
        "engine_state": {**_outage(boards, "engine_state"), "still": _still(pairs)},
        "uploads": [upload for board in boards for upload in board.get("uploads", ())],
    }


def _dispatcher(sample: BoardSample) -> dict[str, Any]:
    if sample.board is None:
        return {"url": sample.url, "node": "", "error": sample.error}
    return {"url": sample.url, "node": str(sample.board.get("node", "")), "error": ""}


def per_s(before: Board | None, after: Board, old: Any, new: Any) -> float:
    """How many a second; 0 where there is nothing to compare with."""
    if before is None:
        return 0.0
    span_us = int(after.get("at_us", 0)) - int(before.get("at_us", 0))
    if span_us <= 0:
        return 0.0
    grown = float(new - old if new >= old else new)
    return grown * _US / span_us


Pairs = Sequence[tuple[Board | None, Board]]


def _rates_of(
    pairs: Pairs, section: str, counts: Sequence[str], levels: Sequence[str]
) -> dict[str, float]:
    """Counts of a section of boards as rates, and its levels, over all dispatchers."""
    sums: dict[str, float] = dict.fromkeys(counts, 0.0) | dict.fromkeys(levels, 0)
    for before, after in pairs:
        new = after.get(section, {})
        old = {} if before is None else before.get(section, {})
        for name in counts:
            sums[name] += per_s(before, after, old.get(name, 0), new.get(name, 0))
        for name in levels:
            sums[name] += new.get(name, 0)
    return sums


def _pair_entries(
    pairs: Pairs, section: str, name: str
) -> Iterator[tuple[Board | None, Board, Board, Mapping[str, Any]]]:
    """Entries of a list, with the one of the same name before it; empty if it was not there."""
    for before, after in pairs:
        old = {} if before is None else {one[name]: one for one in before.get(section, ())}
        for entry in after.get(section, ()):
            yield before, after, entry, old.get(entry[name], {})


def _sum_rates(
    pairs: Pairs, section: str, name: str, counts: Sequence[str]
) -> dict[str, dict[str, float]]:
    rates: dict[str, dict[str, float]] = {}
    for before, after, new, old in _pair_entries(pairs, section, name):
        sums = rates.setdefault(str(new[name]), dict.fromkeys(counts, 0.0))
        for count in counts:
            sums[count] += per_s(before, after, old.get(count, 0), new.get(count, 0))
    return rates


def _callers(pairs: Pairs) -> list[dict[str, Any]]:
    """Return the callers, the largest spender first."""
    rates = _sum_rates(pairs, "callers", "caller", ("mru", "admitted", "refused", "refused_mru"))
    quotas: dict[str, int] = {}  # every dispatcher says that of the fleet
    for _, after in pairs:
        for one in after.get("callers", ()):
            caller = str(one["caller"])
            quotas[caller] = max(quotas.get(caller, 0), int(one.get("quota_ru", 0)))
    entries = [
        {
            "caller": caller,
            "ru": sums["mru"] / 1_000,
            "refused_ru": sums["refused_mru"] / 1_000,
            "admitted": sums["admitted"],
            "refused": sums["refused"],
            "quota_ru": quotas.get(caller, 0),
        }
        for caller, sums in rates.items()
    ]
    return sorted(entries, key=lambda one: (-one["ru"], -one["refused"], one["caller"]))


def _refusals(pairs: Pairs) -> dict[str, float]:
    rates: dict[str, float] = {}
    for before, after in pairs:
        old = {} if before is None else before.get("refusals", {})
        for reason, count in after.get("refusals", {}).items():
            rate = per_s(before, after, old.get(reason, 0), count)
            rates[reason] = rates.get(reason, 0.0) + rate
    return dict(sorted(rates.items(), key=lambda one: (-one[1], one[0])))


def _flows(pairs: Pairs) -> dict[str, dict[str, Any]]:
    """By class: how much was done, and how much was refused for which reason."""
    flows: dict[str, dict[str, Any]] = {}

    def flow(name: str) -> dict[str, Any]:
        return flows.setdefault(name, {"done": 0.0, "refused": {}})

    for before, after in pairs:
        old = {} if before is None else before
        done = old.get("latency", {}).get("classes", {})
        for name, counts in after.get("latency", {}).get("classes", {}).items():
            flow(name)["done"] += per_s(before, after, sum(done.get(name, ())), sum(counts))
        for name, reasons in after.get("refused", {}).items():
            refused = flow(name)["refused"]
            earlier = old.get("refused", {}).get(name, {})
            for reason, count in reasons.items():
                rate = per_s(before, after, earlier.get(reason, 0), count)
                refused[reason] = refused.get(reason, 0.0) + rate
    return flows


def _stress(boards: Sequence[Board]) -> dict[str, Any]:
    """Of the dispatcher with the lowest latency ratio."""
    states: list[dict[str, Any]] = [board["stress"] for board in boards if board.get("stress")]
    if not states:
        return {}
    return min(states, key=_ratio_of)


def _ratio_of(stress: Mapping[str, Any]) -> float:
    return float(stress.get("ratio", 1.0))


def _outage(boards: Sequence[Board], section: str) -> dict[str, Any]:
    """How many lean on a store or engine, how many of them it fails, and the longest how long."""
    stores = [(board[section], board.get("at_us", 0)) for board in boards if board.get(section)]
    silent = [(one, at_us) for one, at_us in stores if one.get("gone")]
    nobody: tuple[Mapping[str, Any], int] = ({}, 0)
    first, at_us = min(silent, key=_since_of, default=nobody)
    since_us = int(first.get("since_us", 0))
    return {
        "asked_by": len(stores),
        "gone_for": len(silent),
        "gone_us": max(0, at_us - since_us) if since_us else 0,
        "why": str(first.get("why", "")),
    }


def _still(pairs: Pairs) -> int:
    """How many have work at the engine of which none ended between the two looks."""
    return sum(
        before is not None
        and after.get("at_us", 0) > before.get("at_us", 0)
        and before.get("queue", {}).get("inflight", 0) > 0
        and after.get("queue", {}).get("inflight", 0) > 0
        and _ended(before) == _ended(after)
        for before, after in pairs
    )


def _ended(board: Board) -> int:
    return sum(
        use.get("worked", 0) + use.get("failed", 0) for use in board.get("engine", {}).values()
    )


def _since_of(store: tuple[Mapping[str, Any], int]) -> int:
    return int(store[0].get("since_us", 0))


def _classes(pairs: Pairs) -> list[dict[str, Any]]:
    rates = _sum_rates(pairs, "classes", "class", ("admitted", "refused"))
    prices: dict[str, int] = {}
    for _, _, new, _ in _pair_entries(pairs, "classes", "class"):
        name = str(new["class"])
        prices[name] = max(prices.get(name, 0), new.get("price_milli", 0))
    return [
        {"class": name, "price": prices[name] / 1_000 if prices[name] else None, **sums}
        for name, sums in rates.items()
    ]


def _slow(pairs: Pairs) -> list[dict[str, Any]]:
    """The shards that take longer than usual, the slowest first."""
    slow = [
        {
            "node": str(board.get("node", "")),
            "shard": str(one["shard"]),
            "operation": str(one["operation"]),
            "ratio": float(one["ratio"]),
            "waiting": int(one["waiting"]),
            "limit": int(one["limit"]),
            "origin": str(one["origin"]),
        }
        for _, board in pairs
        for one in board.get("slow", ())
    ]
    return sorted(slow, key=_ratio_of)


def _queue(boards: Sequence[Board]) -> dict[str, Any]:
    queues = [board["queue"] for board in boards if board.get("queue")]
    sums: dict[str, Any] = {
        name: sum(queue.get(name, 0) for queue in queues)
        for name in ("slots", "inflight", "queued", "queued_bytes")
    }
    origins = {str(queue.get("origin", "set")) for queue in queues}
    sums["origin"] = "found" if "found" in origins else min(origins, default="none yet")
    delays = [board.get("stress", {}).get("queue_us") for board in boards]
    sums["delay_us"] = max((delay for delay in delays if delay is not None), default=None)
    sums["overloaded"] = sum(bool(queue.get("overloaded")) for queue in queues)
    return sums


def _latency(pairs: Pairs) -> dict[str, dict[str, float]]:
    """By class how long what ended took: half of it at most `p50_us`, 99 in 100 `p99_us`."""
    counts: dict[str, list[float]] = {}
    bounds: Sequence[int] = ()
    for before, after in pairs:
        new = after.get("latency", {})
        old = {} if before is None else before.get("latency", {}).get("classes", {})
        bounds = new.get("bounds_us", bounds)
        for name, totals in new.get("classes", {}).items():
            earlier = old.get(name, [0] * len(totals))
            sums = counts.setdefault(name, [0.0] * len(totals))
            for at, (was, now) in enumerate(zip(earlier, totals, strict=True)):
                sums[at] += per_s(before, after, was, now)
    return {
        name: {"p50_us": _quantile(bounds, sums, 0.5), "p99_us": _quantile(bounds, sums, 0.99)}
        for name, sums in counts.items()
        if sum(sums)
    }


def _quantile(bounds_us: Sequence[int], counts: Sequence[float], share: float) -> float:
    """The value at a share of the counts, as if they lay evenly between the bounds of a bucket."""
    rest = share * sum(counts)
    low = 0
    for bound, count in zip(bounds_us, counts, strict=False):
        if count and rest <= count:
            return low + (bound - low) * rest / count
        rest -= count
        low = bound
    return float(low)  # above all bounds: at least this


def _engine(pairs: Pairs) -> list[dict[str, Any]]:
    """The mean time of an operation between the two looks."""
    sums: dict[str, list[float]] = {}
    for before, after in pairs:
        old = {} if before is None else before.get("engine", {})
        for name, new in after.get("engine", {}).items():
            was = old.get(name, {})
            sum_ = sums.setdefault(name, [0.0, 0.0, 0.0])
            for i, count in enumerate(("worked", "failed", "service_us")):
                sum_[i] += per_s(before, after, was.get(count, 0), new.get(count, 0))
    return [
        {
            "operation": name,
            "worked": worked,
            "failed": failed,
            "mean_us": service_us / worked if worked else None,
        }
        for name, (worked, failed, service_us) in sorted(sums.items())
    ]


def _hot(pairs: Pairs) -> list[dict[str, Any]]:
    """The hot keys of all dispatchers, the hottest first; the share is of what they remember."""
    rates = _sum_rates(pairs, "hot", "key", ("served", "forwarded"))
    guaranteed: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for _, _, new, _ in _pair_entries(pairs, "hot", "key"):
        key = str(new["key"])
        guaranteed[key] = guaranteed.get(key, 0) + new.get("guaranteed", 0)
        sizes[key] = max(sizes.get(key, 0), new.get("size_bytes", 0))
    remembered = sum(after.get("shield", {}).get("remembered", 0) for _, after in pairs)
    entries = [
        {
            "key": key,
            "guaranteed": guaranteed[key],
            "share": guaranteed[key] / remembered if remembered else 0.0,
            "rate": sums["served"] + sums["forwarded"],
            **sums,
            "size_bytes": sizes[key],
        }
        for key, sums in rates.items()
    ]
    return sorted(entries, key=lambda one: (-one["guaranteed"], one["key"]))
