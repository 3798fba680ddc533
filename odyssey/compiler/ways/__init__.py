"""Ways to compute the works of a program, plans of them, and their choice by measurement.

* ``works``: ``Work``, one call of a row or one matrix product, by specs and options.
* ``alternatives``: ``Way``, and the rules that list the ways of a work, the guess first.
* ``products``: the ways of matrix products, and all rules by size for them.
* ``plans``: ``Plan``, the ways that differ from the guess, and the iterator over all valid plans.
* ``choices``: ``Choices``, which lowering, passes and code generation ask for the way of a work.
* ``store``, ``contest``, ``choosing``: what was measured, how, and the plan that follows from it.

What other rooms build on, by name:

* ``compiled._works(plan, args, named) -> list[Choice]``: the works that a program of a compiled
  function meets by a plan, each once: ``(work, ways, way, origin)``, ``ways`` with the guess first.
  Nothing is compiled for it. Choosing another way for one work may add works, or remove them.
* ``compiled._dry_run(plan, args, named) -> runtime.dry_run.DryRun``: a program by a plan, on copies
  of the states: ``run()``, ``results()``, ``reset()``, ``works()``. There must be a program for the
  arguments, as after two calls or ``precompile``.
* ``plan.with_way(work, name)``; a ``Plan`` holds differences from the guess and nothing else.
* ``PlanError``, a ``SettingError``: a plan names a way that a work does not have.
"""
