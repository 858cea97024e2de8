"""The documentation as a site of static pages, with navigation and search; built offline."""
