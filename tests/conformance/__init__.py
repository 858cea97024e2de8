"""Every store is put through the suite that users are given."""
