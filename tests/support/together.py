"""Cases that are walked in one test, where pytest would take longer to set them up than they do."""

import inspect
from functools import wraps


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

        signature = inspect.signature(test)
        kept = [p for p in signature.parameters.values() if p.name != name]
        run.__signature__ = signature.replace(parameters=kept)
        del run.__wrapped__  # or pytest would ask for the name
        return run

    return decorate
