"""Rigs that are more than one station: chains of services, caches, tenants, nodes; one a file."""
