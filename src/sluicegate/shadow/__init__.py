"""Shadow: capture traffic, and replay it against rules that are not in force yet."""
