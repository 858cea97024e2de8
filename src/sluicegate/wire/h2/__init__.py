"""HTTP/2, the serving side: bytes in, bytes out.

Nothing here waits, reads a clock or knows what a request is for. `connection.py` takes bytes and
instants, tells its owner of streams, and collects what must be sent.
"""
