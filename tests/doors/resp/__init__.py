"""The RESP door, asked by real Redis clients and by bytes cut at every place."""
