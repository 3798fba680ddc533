"""Checks in forked processes."""

import os
import time
import traceback

import pytest

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")


def in_a_child(check):
    """Whether ``check()`` comes to its end in a forked process."""
    child = os.fork()
    if not child:
        code = 1
        try:
            check()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False
