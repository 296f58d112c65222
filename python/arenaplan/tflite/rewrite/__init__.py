"""
Rewrites of a model that compute the same values in less memory.

Nothing here knows a file format: a patch (:mod:`~arenaplan.tflite.rewrite.patch`) is a list of
operators over old and new tensors, made by splitting operators into strips
(:mod:`~arenaplan.tflite.rewrite.strip_patches`) after the rules for rows
(:mod:`~arenaplan.tflite.rewrite.image_rows`), and placed in an arena by
:mod:`~arenaplan.tflite.rewrite.place`.
"""
