"""The pictures of the concepts: each is drawn by the kernel itself, on virtual time."""
