"""Files: an event log in a folder of append-only segments.

`entries.py` is the format, `segments.py` the folder, `log.py` writes, `reader.py` reads.
"""
