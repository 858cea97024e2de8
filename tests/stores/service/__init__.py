"""The store that is a service elsewhere."""
