"""The light client."""
