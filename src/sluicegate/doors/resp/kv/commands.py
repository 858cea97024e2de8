"""Key-value commands: all that can be said to a dispatcher, under Redis's names where it has one.

What Redis does by reading, changing and writing inside the server (INCR, APPEND) is not here: who
needs it has SG.PUTIF.
"""

from __future__ import annotations

from typing import Final

from sluicegate.doors.resp.commands import CONNECTION
from sluicegate.doors.resp.kv import bulk as kv_bulk
from sluicegate.doors.resp.kv import keys as kv_keys
from sluicegate.doors.resp.kv import points as kv_points
from sluicegate.doors.resp.kv import ranges as kv_ranges
from sluicegate.doors.resp.kv import requests as kv_asking
from sluicegate.doors.resp.kv import scan as kv_scan
from sluicegate.doors.resp.kv import set as kv_set
from sluicegate.doors.resp.kv import times as kv_times
from sluicegate.doors.resp.kv.cursors import Cursors
from sluicegate.doors.resp.kv.names import plain_key
from sluicegate.doors.resp.table import (
    EACH_KEY,
    LOADS,
    LOOKS,
    ONE_KEY,
    PAIRS,
    READS,
    WRITES,
    Row,
    Table,
)

KEY_VALUES: Final = Table(
    (
        *CONNECTION,
        Row("CONFIG", 2, 0, False, kv_keys.config, "What benchmarks want to know"),
        Row("GET", 2, 2, False, kv_points.get, "A value", ONE_KEY, READS),
        Row("MGET", 2, 0, False, kv_points.mget, "Several", EACH_KEY, READS),
        Row("STRLEN", 2, 2, False, kv_points.strlen, "A value's length", ONE_KEY, READS),
        Row("EXISTS", 2, 0, False, kv_keys.exists, "How many are there", EACH_KEY, READS),
        Row("TYPE", 2, 2, False, kv_keys.type_, "string, or none", ONE_KEY, READS),
        Row("TTL", 2, 2, False, kv_times.ttl, "Seconds it has left", ONE_KEY, READS),
        Row("PTTL", 2, 2, False, kv_times.pttl, "Milliseconds it has left", ONE_KEY, READS),
        Row("SET", 3, 0, False, kv_set.set_, "Writes a value", ONE_KEY, WRITES),
        Row("MSET", 3, 0, False, kv_points.mset, "Writes several", PAIRS, WRITES),
        Row("GETDEL", 2, 2, False, kv_set.getdel, "A value for the last time", ONE_KEY, WRITES),
        Row("GETEX", 2, 4, False, kv_set.getex, "A value, and its time", ONE_KEY, WRITES),
        Row("DEL", 2, 0, False, kv_keys.delete, "Deletes values", EACH_KEY, WRITES),
        Row("UNLINK", 2, 0, False, kv_keys.delete, "Likewise", EACH_KEY, WRITES),
        Row("EXPIRE", 3, 3, False, kv_times.expire, "Its time, in s", ONE_KEY, WRITES),
        Row("PEXPIRE", 3, 3, False, kv_times.pexpire, "Its time, in ms", ONE_KEY, WRITES),
        Row("EXPIREAT", 3, 3, False, kv_times.expire_at, "Its end, in s", ONE_KEY, WRITES),
        Row("PEXPIREAT", 3, 3, False, kv_times.pexpire_at, "Its end, in ms", ONE_KEY, WRITES),
        Row("PERSIST", 2, 2, False, kv_times.persist, "For ever", ONE_KEY, WRITES),
        Row("SCAN", 2, 0, False, kv_scan.scan, "Keys of a table", touches=LOOKS),
        Row("SG.RANGE", 2, 0, False, kv_ranges.range_, "Rows of a partition", ONE_KEY, LOOKS),
        Row("SG.PUTIF", 4, 0, False, kv_set.put_if, "Writes on condition", ONE_KEY, WRITES),
        Row("SG.BULK", 3, 0, False, kv_bulk.bulk_, "Uploads of many rows", touches=LOADS),
        Row("SG.DEADLINE", 2, 2, False, kv_asking.deadline, "Of what follows, in ms"),
        Row("SG.CRITICALITY", 2, 2, False, kv_asking.criticality, "Of what follows"),
        Row("SG.STRONG", 2, 2, False, kv_asking.strong, "Whether what follows passes caches by"),
    ),
    Cursors,
    plain_key,
)
