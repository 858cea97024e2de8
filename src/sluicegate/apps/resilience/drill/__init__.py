"""The drill of a user's own service: overload, a slow dependency, a dead one, and what broke.

`caller.py` asks over HTTP, `load.py` decides when, `proxy.py` stands between the service and what
it calls, `child.py` starts and ends the service, `stages.py` plays and judges, `report.py` says it.
"""
