"""The WebSocket door: a connection that HTTP/1.1 was asked to hand over, for sessions of any app.

settings    what bounds one connection, each by its name
session     what an app gives for a connection, and what it is given
protocol    one connection: frames in, messages out, fair turns, pace, time-outs
door        the handshake, and what connections share

The codec is that of `websockets`, without its input and output: it is the maintained one, unmasks
in C, and knows the length of a frame before its bytes. Extensions are not offered: what is
compressed for each connection cannot be shared between them, and may be a bomb.
"""

from importlib.util import find_spec

from sluicegate.contracts.errors import MissingPackage

if find_spec("websockets") is None:
    raise MissingPackage("websockets", "server")
