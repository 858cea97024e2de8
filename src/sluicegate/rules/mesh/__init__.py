"""Rules for a mesh: files as Envoy's own rate-limit service has them, and the answers they make.

`parse` reads a file, `book` finds the rule of a descriptor, `service` asks the limiter and says
what came of it. Nothing here speaks a protocol.
"""
