"""Each kernel by told instants, by properties, and beside a slow and obvious oracle."""
