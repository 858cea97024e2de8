"""The report on a proposal: whom it would newly refuse or admit, as text, as JSON and as a page."""
