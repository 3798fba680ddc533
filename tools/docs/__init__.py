"""The documentation site: ``python -m tools.docs build``, ``check`` and ``open``.

``build`` writes a source folder, ``build/docs/source``, and lets Sphinx make pages of it in
``build/docs/html``. The source folder holds copies of ``docs/`` and of the Markdown files of the
root, the examples in the form that sphinx-gallery runs, and the reference, which is generated from
the table of ops and from docstrings. Nothing generated is kept in git.
"""
