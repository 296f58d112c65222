"""
Rewrites of a model that compute the same values in less memory.

Nothing here knows a file format: a patch (:mod:`~arenaplan.rewrite.patch`) is a list of operators
over old and new tensors, made by splitting operators into strips
(:mod:`~arenaplan.rewrite.strips`) after the rules for rows (:mod:`~arenaplan.rewrite.rows`), and
placed in an arena by :mod:`~arenaplan.rewrite.place`.
"""
