"""Array creation, shape manipulation, indexing, joining, splitting and sorting."""
