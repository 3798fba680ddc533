"""Running functions as native programs, without what decides whether to."""

import numpy as np

import odyssey as od
from odyssey.compiler.entry import RAN
from odyssey.compiler.running import Executable
from odyssey.compiler.verifying import verify


def run(fn, *args):
    """What a program answers, the arrays that it leaves, and the program, whose plan is sound."""
    made = Executable(od.compile(fn).lower(*args).graph)
    verify(made.plan)
    arrays = [a for a in od.tree.leaves(args) if isinstance(a, (np.ndarray, np.generic))]
    given, outs = made.plain(arrays), made.results()
    answer = made.start(given, outs)
    if made.module.calls and answer == RAN:
        answer = made.proceed(given)
        answer = made.end() if answer == RAN else answer
    return answer, outs, made
