"""Key-value commands: all that can be said to a dispatcher, under Redis's names where it has one.

What Redis does by reading, changing and writing inside the server is one step of the engine's here,
too (`plan.py`); a command with a plan can be part of a transaction.
"""

from __future__ import annotations

from typing import Final

from sluicegate.doors.resp.connection_commands import CONNECTION
from sluicegate.doors.resp.kv import bulk, call, counters, expiry, scan, transactions, values
from sluicegate.doors.resp.kv import set as set_commands
from sluicegate.doors.resp.kv.call import normalize_key
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
    Run,
)


def _planned(name: str, least: int, most: int, plan: PlanMaker, summary: str) -> Command:
    """Return a command of one key that reads and writes it as one step."""
    return Command(name, least, most, False, run_of(plan), summary, ONE_KEY, WRITES, plan)


def _of_key(
    name: str, least: int, most: int, run: Run, plan: PlanMaker, summary: str, accesses: int
) -> Command:
    """Return a command of one key that is quicker by itself than as a step of a transaction."""
    return Command(name, least, most, False, run, summary, ONE_KEY, accesses, plan)


KEY_VALUES: Final = CommandTable(
    (
        *CONNECTION,
        Command("TIME", 1, 1, False, expiry.time_, "The instant, in s and us"),
        Command("CONFIG", 2, 0, False, values.config, "What benchmarks want to know"),
        _of_key("GET", 2, 2, values.get, values.plan_get, "A value", READS),
        Command("MGET", 2, 0, False, values.mget, "Several", EACH_KEY, READS, values.plan_mget),
        _of_key("STRLEN", 2, 2, values.strlen, values.plan_strlen, "A value's length", READS),
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
        _of_key("TYPE", 2, 2, values.type_, values.plan_type, "string, or none", READS),
        _of_key("TTL", 2, 2, expiry.ttl, expiry.plan_ttl, "Seconds it has left", READS),
        _of_key("PTTL", 2, 2, expiry.pttl, expiry.plan_pttl, "Milliseconds it has left", READS),
        _of_key(
            "EXPIRETIME",
            2,
            2,
            expiry.expire_time,
            expiry.plan_expire_time,
            "Its end, in s",
            READS,
        ),
        _of_key(
            "PEXPIRETIME",
            2,
            2,
            expiry.pexpire_time,
            expiry.plan_pexpire_time,
            "Its end, in ms",
            READS,
        ),
        _of_key("SET", 3, 0, set_commands.set_, set_commands.plan_set, "Writes a value", WRITES),
        _of_key(
            "SETNX",
            3,
            3,
            set_commands.setnx,
            set_commands.plan_setnx,
            "Writes, if nothing is there",
            WRITES,
        ),
        _of_key(
            "SETEX",
            4,
            4,
            set_commands.setex,
            set_commands.plan_setex,
            "Writes, for so many s",
            WRITES,
        ),
        _of_key(
            "PSETEX",
            4,
            4,
            set_commands.psetex,
            set_commands.plan_psetex,
            "Writes, for so many ms",
            WRITES,
        ),
        Command(
            "MSET", 3, 0, False, values.mset, "Writes several", PAIRS, WRITES, values.plan_mset
        ),
        Command(
            "MSETNX",
            3,
            0,
            False,
            run_of(values.plan_msetnx),
            "Writes several, if none is there",
            PAIRS,
            WRITES,
            values.plan_msetnx,
        ),
        _planned("GETSET", 3, 3, set_commands.plan_getset, "Writes, and tells the value before"),
        _planned("GETDEL", 2, 2, set_commands.plan_getdel, "A value for the last time"),
        _of_key(
            "GETEX",
            2,
            0,
            set_commands.getex,
            set_commands.plan_getex,
            "A value, and its time",
            WRITES,
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
        Command("SG.DEADLINE", 2, 2, False, call.set_deadline, "Of what follows, in ms"),
        Command("SG.CRITICALITY", 2, 2, False, call.set_criticality, "Of what follows"),
        Command("SG.STRONG", 2, 2, False, call.set_strong, "Whether what follows passes caches by"),
    ),
    Cursors,
    normalize_key,
    transactions.enqueue,
)
