"""`sluicegate resilience serve`: a queue in front of WSGI worker processes.

`command.py` reads the flags. `front.py` is the ASGI application with the queue. `request_stream.py`
reads a request ahead and notices a client that disconnects; `response_buffer.py` holds a response
for a slow client. `workers.py` keeps the worker processes, `upstream.py` is a connection to one of
them, and `worker.py` is the program of each.
"""
