"""`sluicegate limiter`: the rate-limit service of a mesh, a gateway, a program.

Settings, start, stop, and the wiring between doors, rules, limiter and telemetry; nothing here
decides whether a request may enter.
"""
