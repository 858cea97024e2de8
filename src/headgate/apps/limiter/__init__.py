"""`headgate limiter`: the rate-limit service. Settings, start, stop, and the wiring between."""
