"""The codecs: HTTP/2, gRPC framing and RESP as bytes in, events out.

Sans-I/O: a codec never reads a socket and never decides. Doors and our own clients share it.
"""
