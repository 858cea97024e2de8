"""What is published is what the script makes, and says what Envoy's own classes say."""
