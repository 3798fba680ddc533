"""What a checkout needs, and an installed package does not."""
