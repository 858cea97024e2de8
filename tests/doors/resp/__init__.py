"""The RESP door, requested by real Redis clients and by bytes cut at every place."""
