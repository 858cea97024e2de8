"""HTTP/2, the serving side: bytes in, bytes out.

Nothing here waits, reads a clock or knows what a request is for. `connection.py` is told bytes and
instants, tells an application of streams, and collects what must be sent.
"""
