"""A queue in front of WSGI workers."""
