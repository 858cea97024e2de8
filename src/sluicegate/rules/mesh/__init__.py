"""Rules for a mesh: files as Envoy's own rate-limit service has them, and the responses they make.

`parser` reads a file, `rule_set` finds the rule of a descriptor, `service` calls the limiter and
responds. Nothing here speaks a protocol.
"""
