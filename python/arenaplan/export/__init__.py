"""
Plans in the forms that runtimes and tools read.

:mod:`~arenaplan.export.tflm` writes a plan into a TFLite model, where TensorFlow Lite
Micro obeys it; :mod:`~arenaplan.export.c` and :mod:`~arenaplan.export.table` write it as
a C header and as CSV.
"""
