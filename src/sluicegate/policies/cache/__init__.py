"""Cache: answers that several callers share.

`coalesce.py` makes one fetch for all callers of a key at the same time; `hot_key.py` keeps the
answer of a popular key for a moment, while the reads that it saves are worth a stale answer.
"""
