"""Limits kept in this process: one table a rule, one integer a key, nothing on disk.

`table.py` keeps and forgets keys, `tables.py` packs each algorithm's state around its kernel,
`joint.py` charges several tables all or nothing, and `store.py` offers them as a store.
"""
