"""Fault injection: delays, errors and broken connections, to see what a service does with them.

Off unless switched on, and never in silence: a warning names every fault that is on, each answer it
touched carries `X-Sluicegate-Fault`, and all of it is counted. `injector.py` judges, by a seed; the
other files put it before an application (`asgi.py`, `wsgi.py`, `grpc.py`) or a client (`httpx.py`,
`calls.py`).
"""
