"""Where arrays live, whose they are, and who may write to them."""
