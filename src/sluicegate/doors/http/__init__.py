"""The HTTP door of the services: JSON in, JSON out, and what watches over them."""
