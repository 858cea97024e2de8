"""Key-value commands: all that can be said to a dispatcher, under Redis's names where it has one.

What Redis does by reading, changing and writing inside the server is one step of the engine's here,
too (`plan.py`); a command with a plan can be part of a transaction.
"""

from __future__ import annotations

from typing import Final

from sluicegate.doors.resp.connection_commands import CONNECTION
from sluicegate.doors.resp.kv import bulk, context, counters, expiry, scan, transactions, values
from sluicegate.doors.resp.kv import set as set_commands
from sluicegate.doors.resp.kv.arguments import normalize_key
from sluicegate.doors.resp.kv.cursors import Cursors
from sluicegate.doors.resp.kv.plan import PlanMaker, run_of
from sluicegate.doors.resp.session import (
    EACH_KEY,
    LOADS,
    ONE_KEY,
    PAIRS,
    READS,
    SCANS,
    WRITES,
    Command,
    CommandTable,
)


def _planned(name: str, least: int, most: int, plan: PlanMaker, summary: str) -> Command:
    """Return a command of one key that reads and writes it as one step."""
    return Command(name, least, most, False, run_of(plan), summary, ONE_KEY, WRITES, plan)


KEY_VALUES: Final = CommandTable(
    (
        *CONNECTION,
        Command("CONFIG", 2, 0, False, values.config, "What benchmarks want to know"),
        Command("GET", 2, 2, False, values.get, "A value", ONE_KEY, READS, values.plan_get),
        Command("MGET", 2, 0, False, values.mget, "Several", EACH_KEY, READS, values.plan_mget),
        Command(
            "STRLEN",
            2,
            2,
            False,
            values.strlen,
            "A value's length",
            ONE_KEY,
            READS,
            values.plan_strlen,
        ),
        Command(
            "EXISTS",
            2,
            0,
            False,
            values.exists,
            "How many are there",
            EACH_KEY,
            READS,
            values.plan_exists,
        ),
        Command(
            "TYPE", 2, 2, False, values.type_, "string, or none", ONE_KEY, READS, values.plan_type
        ),
        Command(
            "TTL", 2, 2, False, expiry.ttl, "Seconds it has left", ONE_KEY, READS, expiry.plan_ttl
        ),
        Command(
            "PTTL",
            2,
            2,
            False,
            expiry.pttl,
            "Milliseconds it has left",
            ONE_KEY,
            READS,
            expiry.plan_pttl,
        ),
        Command(
            "SET",
            3,
            0,
            False,
            set_commands.set_,
            "Writes a value",
            ONE_KEY,
            WRITES,
            set_commands.plan_set,
        ),
        Command(
            "SETNX",
            3,
            3,
            False,
            set_commands.setnx,
            "Writes, if nothing is there",
            ONE_KEY,
            WRITES,
            set_commands.plan_setnx,
        ),
        Command(
            "SETEX",
            4,
            4,
            False,
            set_commands.setex,
            "Writes, for so many s",
            ONE_KEY,
            WRITES,
            set_commands.plan_setex,
        ),
        Command(
            "PSETEX",
            4,
            4,
            False,
            set_commands.psetex,
            "Writes, for so many ms",
            ONE_KEY,
            WRITES,
            set_commands.plan_psetex,
        ),
        Command(
            "MSET", 3, 0, False, values.mset, "Writes several", PAIRS, WRITES, values.plan_mset
        ),
        _planned("GETSET", 3, 3, set_commands.plan_getset, "Writes, and tells the value before"),
        _planned("GETDEL", 2, 2, set_commands.plan_getdel, "A value for the last time"),
        Command(
            "GETEX",
            2,
            4,
            False,
            set_commands.getex,
            "A value, and its time",
            ONE_KEY,
            WRITES,
            set_commands.plan_getex,
        ),
        _planned("INCR", 2, 2, counters.plan_incr, "One more"),
        _planned("DECR", 2, 2, counters.plan_decr, "One less"),
        _planned("INCRBY", 3, 3, counters.plan_incrby, "So many more"),
        _planned("DECRBY", 3, 3, counters.plan_decrby, "So many less"),
        Command(
            "DEL",
            2,
            0,
            False,
            values.delete,
            "Deletes values",
            EACH_KEY,
            WRITES,
            values.plan_delete,
        ),
        Command(
            "UNLINK", 2, 0, False, values.delete, "Likewise", EACH_KEY, WRITES, values.plan_delete
        ),
        _planned("EXPIRE", 3, 0, expiry.plan_expire, "Its time, in s"),
        _planned("PEXPIRE", 3, 0, expiry.plan_pexpire, "Its time, in ms"),
        _planned("EXPIREAT", 3, 0, expiry.plan_expire_at, "Its end, in s"),
        _planned("PEXPIREAT", 3, 0, expiry.plan_pexpire_at, "Its end, in ms"),
        _planned("PERSIST", 2, 2, expiry.plan_persist, "For ever"),
        Command("MULTI", 1, 1, False, transactions.multi, "Queues what follows"),
        Command("EXEC", 1, 1, False, transactions.exec_, "Does it, as one", accesses=LOADS),
        Command("DISCARD", 1, 1, False, transactions.discard, "Forgets it"),
        Command("WATCH", 2, 0, False, transactions.watch, "Keys for EXEC", EACH_KEY, READS),
        Command("UNWATCH", 1, 1, False, transactions.unwatch, "None of them", accesses=LOADS),
        Command("SCAN", 2, 0, False, scan.scan, "Keys of a table", accesses=SCANS),
        Command("SG.RANGE", 2, 0, False, scan.range_, "Rows of a partition", ONE_KEY, SCANS),
        Command(
            "SG.PUTIF", 4, 0, False, set_commands.put_if, "Writes on condition", ONE_KEY, WRITES
        ),
        Command("SG.BULK", 3, 0, False, bulk.bulk_, "Uploads of many rows", accesses=LOADS),
        Command("SG.DEADLINE", 2, 2, False, context.set_deadline, "Of what follows, in ms"),
        Command("SG.CRITICALITY", 2, 2, False, context.set_criticality, "Of what follows"),
        Command(
            "SG.STRONG", 2, 2, False, context.set_strong, "Whether what follows passes caches by"
        ),
    ),
    Cursors,
    normalize_key,
    transactions.enqueue,
)
