"""The gRPC door: HTTP/2 in, answers of a service out.

How bytes become calls is in `wire/h2` and the protocol here; what a message holds is in the
servicers. Nothing here decides.
"""
