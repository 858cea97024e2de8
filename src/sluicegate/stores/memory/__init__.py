"""Limits kept in this process: one table a rule, one integer a key, nothing on disk.

`table.py` keeps and forgets keys, `counting.py` packs each algorithm's state around its kernel,
`together.py` asks several tables all or nothing, and `store.py` offers them as a store.
"""
