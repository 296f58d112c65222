"""
Model rewrites that compute the same values in less memory.

No file format is known here: a patch (:mod:`~arenaplan.tflite.rewrite.patch`) is a list of
operators on old and new tensors. :mod:`~arenaplan.tflite.rewrite.strip_patches` splits operators
into strips by the row rules in :mod:`~arenaplan.tflite.rewrite.image_rows`, and
:mod:`~arenaplan.tflite.rewrite.place` places tensors in an arena.
"""
