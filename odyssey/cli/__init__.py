"""Command line: ``python -m odyssey train``, ``ops``, ``files``, ``log``, ``tune``, and others.

A command is one module. Its ``add_command`` declares the options and the function that runs it,
which takes the parsed arguments and returns the exit status. ``build_parser`` lists the commands.
"""

from odyssey.cli.commands import build_parser, main

__all__ = ["build_parser", "main"]


def __dir__() -> list[str]:
    return sorted(__all__)
