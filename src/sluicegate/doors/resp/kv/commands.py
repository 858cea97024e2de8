"""Key-value commands: all that can be said to a dispatcher, under Redis's names where it has one.

What Redis does by reading, changing and writing inside the server (INCR, APPEND) is not here: who
needs it has SG.PUTIF.
"""

from __future__ import annotations

from typing import Final

from sluicegate.doors.resp.connection_commands import CONNECTION
from sluicegate.doors.resp.kv import bulk, context, expiry, scan, values
from sluicegate.doors.resp.kv import set as set_commands
from sluicegate.doors.resp.kv.arguments import normalize_key
from sluicegate.doors.resp.kv.cursors import Cursors
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

KEY_VALUES: Final = CommandTable(
    (
        *CONNECTION,
        Command("CONFIG", 2, 0, False, values.config, "What benchmarks want to know"),
        Command("GET", 2, 2, False, values.get, "A value", ONE_KEY, READS),
        Command("MGET", 2, 0, False, values.mget, "Several", EACH_KEY, READS),
        Command("STRLEN", 2, 2, False, values.strlen, "A value's length", ONE_KEY, READS),
        Command("EXISTS", 2, 0, False, values.exists, "How many are there", EACH_KEY, READS),
        Command("TYPE", 2, 2, False, values.type_, "string, or none", ONE_KEY, READS),
        Command("TTL", 2, 2, False, expiry.ttl, "Seconds it has left", ONE_KEY, READS),
        Command("PTTL", 2, 2, False, expiry.pttl, "Milliseconds it has left", ONE_KEY, READS),
        Command("SET", 3, 0, False, set_commands.set_, "Writes a value", ONE_KEY, WRITES),
        Command("MSET", 3, 0, False, values.mset, "Writes several", PAIRS, WRITES),
        Command(
            "GETDEL", 2, 2, False, set_commands.getdel, "A value for the last time", ONE_KEY, WRITES
        ),
        Command("GETEX", 2, 4, False, set_commands.getex, "A value, and its time", ONE_KEY, WRITES),
        Command("DEL", 2, 0, False, values.delete, "Deletes values", EACH_KEY, WRITES),
        Command("UNLINK", 2, 0, False, values.delete, "Likewise", EACH_KEY, WRITES),
        Command("EXPIRE", 3, 3, False, expiry.expire, "Its time, in s", ONE_KEY, WRITES),
        Command("PEXPIRE", 3, 3, False, expiry.pexpire, "Its time, in ms", ONE_KEY, WRITES),
        Command("EXPIREAT", 3, 3, False, expiry.expire_at, "Its end, in s", ONE_KEY, WRITES),
        Command("PEXPIREAT", 3, 3, False, expiry.pexpire_at, "Its end, in ms", ONE_KEY, WRITES),
        Command("PERSIST", 2, 2, False, expiry.persist, "For ever", ONE_KEY, WRITES),
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
)
