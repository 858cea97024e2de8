"""The limiter as its users call it."""
