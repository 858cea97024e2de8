"""`sluicegate up`: limits behind a small HTTP door, every service that is installed, a demo load.

For trying out and for looking at. What it serves is real: the same tables that `Limiter` asks,
the services' own commands, real sockets, real requests. What it is not: a rate-limit service; its
own door has no authentication and no TLS, so it stays on the loopback address unless `--insecure`
is given.

    settings → named_limits ← counts   what is decided, and what is counted of it
    pages                              the HTTP door
    callers, load                      who asks in the demo, and the child process that does
    services, children, child          the other services, and processes that end with us
    story_parts, story                 who asks those, scene by scene, and the child that does
    charts, view, plain                what is shown, on a terminal and elsewhere
    command, run                       flags, start, stop
"""
