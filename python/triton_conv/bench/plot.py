"""Plot a result file: TFLOP/s of each candidate by layer.

    python plot.py RESULTS.json PLOT.svg
"""

import json
import pathlib
import sys

from triton_conv import bench


def main(results, path):
    bench.plot(json.loads(pathlib.Path(results).read_text()), path)


if __name__ == "__main__":
    main(*sys.argv[1:])
