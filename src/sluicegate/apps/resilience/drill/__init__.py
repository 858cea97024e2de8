"""The drill of a user's own service: overload, leaks, a slow dependency, a dead one.

`caller.py` asks over HTTP, `load.py` decides when, `proxy.py` stands between the service and what
it calls, `child.py` starts and ends the service, `usage.py` reads what it uses, `stages.py` plays,
`verdicts.py` judges, and `report.py` prints what broke and the fix.
"""
