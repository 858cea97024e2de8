"""Pages of the console: each is a function from a picture to parts of HTML, by their names."""
