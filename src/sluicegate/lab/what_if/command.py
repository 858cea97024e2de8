"""The verb `sluicegate lab what-if`: captured traffic against rulebooks, and what becomes of it.

A shadow replay says whom rules refuse. This says what that is good for: what they admit goes to a
backend that can do so much, for callers who wait so long, and who is answered in time is counted.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sluicegate.contracts.errors import BadValue
from sluicegate.lab.arguments import SEED_MAX, SERVICES, parse_number, parse_service, parse_whole
from sluicegate.lab.progress import ProgressBar, write_status

if TYPE_CHECKING:
    from sluicegate.lab.what_if.plan import WhatIfPlan
    from sluicegate.lab.what_if.traffic import Traffic

EXAMPLES: Final = """\
examples:
  sluicegate lab what-if --capture capture/ --rules live/ --rules new/ --capacity 2000
  sluicegate lab what-if --capture capture/ --rules none --rules new/ --capacity 2000 \\
      --workers 32 --timeout 300 --speed 2
  sluicegate lab what-if --csv requests.csv --rules new.yaml --workers 16 --cost 8000
  sluicegate lab what-if --jsonl requests.jsonl --rules live/ --rules new/ --workers 4 \\
      --cost 20000,BULK=90000 --with chain --retries naive
  sluicegate lab what-if --envoy-log access.json --map user=x-user-id --rules none \\
      --rules new/ --json

Two of --capacity, --workers and --cost give the third: a unit of weight takes one worker so many
microseconds. The same capture, rules, flags and seed print the same to the byte.
"""
REQUESTS_DEFAULT: Final = 20_000_000
REQUESTS_MAX: Final = 1_000_000_000
_READING: Final = "reading"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the flags."""
    add = parser.add_argument
    add(
        "--rules",
        metavar="PATH",
        action="append",
        default=[],
        help="a rulebook: a folder or a file, or none; up to 8 of them are set side by side",
    )
    add("--capture", metavar="DIR|FILE", default="", help="captured traffic")
    add("--key", metavar="FILE", default="", help="the key of its redaction (default DIR.key)")
    add("--csv", metavar="FILE", help="traffic from a table with a header")
    add("--jsonl", metavar="FILE", help="traffic from lines of JSON")
    add("--envoy-log", metavar="FILE", help="traffic from Envoy's access log")
    add(
        "--map",
        metavar="NAME=FIELD",
        action="append",
        default=[],
        help="of Envoy's log: which field has the user, path, time, status, priority, ...",
    )
    add("--requests", metavar="N", default=str(REQUESTS_DEFAULT), help="read at most this many")
    add("--speed", metavar="X", default="1", help="replay it this many times as fast (default 1)")
    add(
        "--capacity",
        metavar="C",
        help="units of weight a second that can be served (default: all that comes is a load of "
        "0.8)",
    )
    add("--workers", metavar="N", help="how many workers share it (default 8)")
    add(
        "--cost",
        metavar="US",
        help="what a unit takes a worker, in microseconds; by class too: 20000,BULK=90000",
    )
    add(
        "--service",
        metavar="NAME",
        default="exponential",
        help=f"how that varies, one of {SERVICES} (default exponential)",
    )
    add("--timeout", metavar="MS", default="500", help="how long callers wait (default 500)")
    add("--retries", metavar="NAME", default="none", help="none (default), naive or smart")
    add(
        "--with",
        dest="front",
        metavar="NAME",
        default="fifo",
        help="before the backend: fifo, a plain pool (default), or our policies: chain, queue",
    )
    add("--queue", metavar="N", default="1000000", help="how many may wait (default 1e6)")
    add("--seed", metavar="N", default="0", help="the seed (default 0)")
    add("--json", action="store_true", help="print JSON")
    add(
        "--semantics",
        choices=("sluicegate", "envoy"),
        default="sluicegate",
        help="how rules of Envoy's format count (default sluicegate)",
    )
    add(
        "--merge-domains", action="store_true", help="let several of Envoy's files be of one domain"
    )


def run(arguments: Namespace) -> int:
    """Run it, and print the report."""
    # Rules and policies come with these.
    from sluicegate.lab.what_if import sources  # noqa: PLC0415
    from sluicegate.lab.what_if.report import build_report  # noqa: PLC0415
    from sluicegate.lab.what_if.runs import (  # noqa: PLC0415
        check_front,
        class_rules,
        classes_of,
        run_rulebooks,
    )
    from sluicegate.lab.what_if.text import render_text  # noqa: PLC0415
    from sluicegate.lab.what_if.traffic import Traffic  # noqa: PLC0415
    from sluicegate.shadow.report.report import as_json  # noqa: PLC0415

    speed = parse_number("--speed", arguments.speed)
    requests_max = parse_whole("--requests", arguments.requests, 1, REQUESTS_MAX)
    check_front(arguments.front)
    make_plan = planner(arguments, speed)
    bar = ProgressBar(write_status, live=sys.stderr.isatty())

    def progress(done: int, total: int, what: str) -> None:
        bar.show(done, max(total, 1), what)

    books = sources.read_books(
        arguments.rules, semantics=arguments.semantics, merge_domains=arguments.merge_domains
    )
    try:
        source = sources.read_traffic(
            arguments,
            books,
            requests_max=requests_max,
            progress=lambda done, total: progress(done, total, _READING),
        )
        common = class_rules(books)
        traffic = Traffic(source.captured, classes_of(common, source.captured), speed=speed)
        plan = make_plan(traffic)
        results = run_rulebooks(plan, traffic, books, front=arguments.front, progress=progress)
    except KeyboardInterrupt:
        bar.clear()
        raise
    report = build_report(
        plan,
        traffic,
        results,
        front=arguments.front,
        service=arguments.service,
        retries=arguments.retries,
        classes_by=common.name,
        notes=source.notes,
    )
    sys.stdout.write(as_json(report) if arguments.json else render_text(report))
    return 0


def planner(arguments: Namespace, speed: float) -> Callable[[Traffic], WhatIfPlan]:
    """Read all flags of the plan at once; return what makes the plan of the traffic."""
    from sluicegate.lab.rig import WORKERS_MAX  # noqa: PLC0415 - likewise
    from sluicegate.lab.what_if.plan import (  # noqa: PLC0415
        CAPACITY_MAX,
        QUEUE_MAX_MAX,
        RETRIES,
        WHOLE_US,
        WhatIfPlan,
        derive_backend,
        parse_costs,
        scale_backend,
    )

    capacity = None
    if arguments.capacity is not None:
        capacity = parse_number("--capacity", arguments.capacity, CAPACITY_MAX)
    workers = None
    if arguments.workers is not None:
        workers = parse_whole("--workers", arguments.workers, 1, WORKERS_MAX)
    costs = {} if arguments.cost is None else parse_costs(arguments.cost)
    service = parse_service("--service", arguments.service, WHOLE_US)
    timeout_us = max(round(parse_number("--timeout", arguments.timeout, 86_400_000) * 1_000), 1)
    if arguments.retries not in RETRIES:
        raise BadValue("--retries", arguments.retries, f"give one of {', '.join(RETRIES)}")
    queue_max = parse_whole("--queue", arguments.queue, 1, QUEUE_MAX_MAX)
    seed = parse_whole("--seed", arguments.seed, 0, SEED_MAX)
    # What does not fit together is refused before anything is read.
    derive_backend(capacity=capacity, workers=workers, costs=costs, offered_per_s=1.0)

    def plan_of(traffic: Traffic) -> WhatIfPlan:
        # A capture of a tenth of all entities is a tenth of what comes.
        backend = derive_backend(
            capacity=capacity,
            workers=workers,
            costs=costs,
            offered_per_s=traffic.units_per_s() / traffic.share,
        )
        return WhatIfPlan(
            backend=scale_backend(backend, traffic.share),
            service=service,
            timeout_us=timeout_us,
            speed=speed,
            retries=RETRIES[arguments.retries],
            queue_max=queue_max,
            seed=seed,
        )

    return plan_of
