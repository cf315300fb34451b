"""python -m triton_simulator [--arch sm_100] [--seed N] [--schedules N] [--counts] script.py args..."""

import argparse
import runpy
import sys

from . import activate
from .driver import ARCHITECTURES


def main():
    parser = argparse.ArgumentParser(prog="python -m triton_simulator", description="Run a script on a simulated GPU.")
    parser.add_argument("--arch", choices=ARCHITECTURES, default="sm_90")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--schedules", type=int, default=1, help="interleavings to run of each launch")
    parser.add_argument("--counts", action="store_true", help="print what the kernels did at the end")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    simulator = activate(options.arch, options.seed, options.schedules)
    sys.argv = [options.script, *options.arguments]
    runpy.run_path(options.script, run_name="__main__")
    if options.counts:
        print(simulator.report())


if __name__ == "__main__":
    main()
