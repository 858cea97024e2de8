"""`sluicegate up`: the in-process limits behind a small HTTP door, a demo load, and a view of both.

For trying out and for looking at. What it serves is real: the same tables that `Limiter` asks,
real sockets, real requests. What it is not: a rate-limit service; it has no authentication and no
TLS, so it stays on the loopback address unless `--insecure` is given.

    settings → gate ← counts        what is decided, and what is counted of it
    app, serve                     the HTTP door and its server
    callers, load                  who asks in the demo, and the child process that does
    charts, view, plain            what is shown, on a terminal and elsewhere
    command, run                   flags, start, stop
"""
