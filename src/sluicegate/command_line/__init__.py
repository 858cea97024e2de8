"""What commands share: the client of a running service, text for people, a pool of processes."""
