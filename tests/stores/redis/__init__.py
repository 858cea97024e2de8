"""The Redis client: on a loop and a transport moved by hand, and on real servers."""
