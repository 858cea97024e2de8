"""What has been tried against the doors from outside, and what it may cost at most."""
