"""Rules for a mesh: files as envoyproxy/ratelimit has them, and the answers they make."""
