"""Shadow: traffic that was seen, kept, and tried against rules that are not in force yet."""
