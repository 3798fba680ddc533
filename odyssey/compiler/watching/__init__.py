"""Finding what a function reads of Python, and watching it."""
