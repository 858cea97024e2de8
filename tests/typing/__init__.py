"""A user's code, only type-checked: what these files say must hold under mypy strict."""
