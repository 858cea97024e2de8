"""What commands share: the client of a running service, text for people, live views, processes."""
