"""The server side: what stands before a service's work, and the doors that put it there."""
