"""The command `sluicegate resilience`: what a service's settings cost, and what breaks it.

`plan` reckons from a settings file and touches nothing; `drill` starts or finds a service on this
machine and puts it through overload and failing dependencies. `state_server.py` shows a console the
clients of a process that serves nothing itself.
"""
