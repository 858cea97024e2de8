"""The command `sluicegate dlq`: look at dead letters, check them, charge the store for them.

`command.py` holds the flags, `reading.py` how a log is read to its end; each verb has its file.
"""
