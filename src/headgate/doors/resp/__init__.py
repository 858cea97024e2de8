"""The RESP door: commands in, replies out; any Redis client can ask."""
