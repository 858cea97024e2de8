"""Each observer against what it is told, and against what really reads it."""
