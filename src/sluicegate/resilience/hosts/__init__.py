"""Smart load balancing: which hosts there are, and which of them gets the next attempt."""
