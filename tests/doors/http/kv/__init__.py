"""The key-value service's door in HTTP."""
