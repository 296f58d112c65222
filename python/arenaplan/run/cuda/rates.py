"""
Device rates, by which step times are estimated.

The rates were fitted to recorded runs of seven networks on an NVIDIA H100, whose steps were
repeated and timed one by one, and those of calls on the host to copies on an H200; see
``benches/log/speed.md``. Plans only compare estimates with each other.
"""

from __future__ import annotations

from typing import Final

LAUNCH: Final = 2e-6
"""Seconds that a kernel launch takes besides the kernel's work."""
PRODUCT: Final = 5e-6
"""Seconds that a matrix product takes besides the arithmetic."""
BYTES: Final = 3e12
"""Bytes that are read or written in a second."""
OPERATIONS: Final = {2: 1e14, 4: 3e13, 8: 3e13}
"""Product operations per second, by bytes per element."""
CALL: Final = 1.6e-5
"""Seconds for which a call on the host waits for its stream, and its stream for it."""
COPIED: Final = 8e9
"""Bytes that are copied between host and device in a second, to or from pages that can move."""
