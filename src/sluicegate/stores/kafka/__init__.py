"""Kafka: an event log in one partition of a topic. Needs the extra `kafka`.

`url.py` reads the settings, `envelope.py` is the format, `log.py` appends, `reader.py` reads.
"""
