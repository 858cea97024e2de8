"""Files: an event log in a folder of append-only segments.

`entry.py` is the format, `segments.py` the folder, `log.py` the one who writes, `reader.py` those
who read.
"""
