"""Guards: conditions on the Python objects that a traced function reads."""
