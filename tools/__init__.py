"""Tools of a checkout, which an installed package does not have."""
