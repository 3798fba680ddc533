"""Cases that are walked in one test, where pytest would take longer to set them up than they do."""

import inspect
from functools import wraps

import pytest


def each(names, cases, slow=()):
    """As ``pytest.mark.parametrize``, with one test for all cases whose names differ in a number.

    Args:
        names: Of the arguments.
        cases: Their values by name, as ``"sum-0"``, ``"sum-1"``.
        slow: Names, without the numbers, of cases that are slow tests.
    """
    groups = {}
    for what, values in cases.items():
        groups.setdefault(what.rpartition("-")[0] or what, {})[what] = values

    def decorate(test):
        @wraps(test)
        def run(*args, walked, **named):
            for what, values in walked.items():
                try:
                    test(*args, **named, **dict(zip(names, values, strict=True)))
                except Exception as error:
                    error.add_note(f"the case: {what}")
                    raise

        _sign(run, test, names, "walked")
        cases_of_test = [
            pytest.param(group, id=what, marks=[pytest.mark.slow] if what in slow else [])
            for what, group in groups.items()
        ]
        return pytest.mark.parametrize("walked", cases_of_test)(run)

    return decorate


def together(name, values, ids=None):
    """As ``pytest.mark.parametrize``, in one test that ends with the first case that fails."""
    cases = list(zip(values, map(str, values) if ids is None else ids, strict=True))

    def decorate(test):
        @wraps(test)
        def run(*args, **named):
            for value, what in cases:
                try:
                    test(*args, **named, **{name: value})
                except Exception as error:
                    error.add_note(f"{name}: {what}")
                    raise

        _sign(run, test, [name])
        return run

    return decorate


def _sign(run, test, without, added=None):
    """Let a function ask pytest for what a test asks, but for some arguments."""
    signature = inspect.signature(test)
    kept = [p for p in signature.parameters.values() if p.name not in without]
    if added:
        kept.append(inspect.Parameter(added, inspect.Parameter.KEYWORD_ONLY))
    run.__signature__ = signature.replace(parameters=kept)
    del run.__wrapped__  # or pytest would ask for the others
