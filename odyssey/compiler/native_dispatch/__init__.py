"""Native dispatch: guards and argument checks in machine code over CPython and NumPy objects."""
