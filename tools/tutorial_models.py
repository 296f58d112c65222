"""
Write the TFLite model of docs/tutorials again.

Usage: python tools/tutorial_models.py [--check]

With --check nothing is written; the exit code is 1 if the file is out of date. `doorbell.tflite` is
a small network of separable convolutions on images of 48 x 48 pixels, as those that detect a person
at the door, with random weights: memory does not depend on them.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "docs" / "tutorials" / "models" / "doorbell.tflite"
sys.path.insert(0, str(ROOT / "tests" / "python"))

from strip_models import VALID, Network  # noqa: E402


def doorbell() -> bytes:
    """Return the model: images with three channels to two scores."""
    net = Network(7, (1, 48, 48, 3))
    x = net.conv(0, 8, 3, 2)
    for channels, stride in ((16, 1), (32, 2), (32, 1), (64, 2)):
        x = net.conv(net.depthwise(x, 3, stride), channels, 1)
    x = net.pool(x, "AVERAGE_POOL_2D", 6, 6, VALID)
    return net.file([net.conv(x, 2, 1)])


def main() -> None:
    """Write the model, or compare it."""
    if "--check" not in sys.argv:
        MODEL.write_bytes(doorbell())
    elif MODEL.read_bytes() != doorbell():
        sys.exit(f"{MODEL} is out of date: run 'python tools/tutorial_models.py'")


if __name__ == "__main__":
    main()
