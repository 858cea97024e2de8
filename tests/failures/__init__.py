"""What is admitted while a store fails: real servers, broken on purpose, under load."""
