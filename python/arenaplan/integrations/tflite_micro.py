"""
Measuring a model in the interpreter of the Python package ``tflite-micro``.

The interpreter prints its allocations and no more. The scratch memory of one kernel is found
with a model that has its operator alone, whose tensors are all fixed at the same bytes: what the
head has beyond them is scratch memory. Each start of the interpreter runs in a process of its
own, for it ends the process when some kernels lack memory.
"""

from __future__ import annotations

import os
import re
import struct
import sys
import tempfile
from collections.abc import Sequence
from importlib import metadata
from typing import Any, Final, NamedTuple

from arenaplan.errors import InvalidOption, UnsupportedModel
from arenaplan.export.rewrite import isolated, with_metadata
from arenaplan.importers.tflite.micro.arena import operator_costs, total
from arenaplan.importers.tflite.micro.build import REFERENCE
from arenaplan.importers.tflite.micro.profile import OperatorProfile, Profile
from arenaplan.importers.tflite.model import Model, parse
from arenaplan.importers.tflite.offline import METADATA_NAME
from arenaplan.importers.tflite.timeline import ALIGNMENT
