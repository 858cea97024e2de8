"""The command `sluicegate dlq`: look at dead letters, check them, charge the store for them.

`command.py` holds the flags, `letters.py` reads a log to its end; each verb has its file.
"""
