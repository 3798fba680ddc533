"""Dispatch: from the arguments of a call to a compiled program."""
