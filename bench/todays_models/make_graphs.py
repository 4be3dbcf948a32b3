#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Write the graphs of definitions.py beside it, and the two of whole depth into examples/models.

    python3 -m venv venv && venv/bin/pip install torch==2.15.0 torchvision==0.29.2 transformers==5.23.0 timm==1.0.31
    venv/bin/python bench/todays_models/make_graphs.py [NAME...] [--out FOLDER]

Other releases make other graphs, so they are refused.
"""

import argparse
import importlib.metadata
import inspect
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "adapters/libtorch"))
RELEASES = {"torch": "2.15.0", "torchvision": "0.29.2", "transformers": "5.23.0", "timm": "1.0.31"}

import definitions  # noqa: E402
import export_pt2  # noqa: E402
import torch  # noqa: E402

SHIPPED = {"llama3_8b_32": lambda: definitions.llama3_8b(32), "mixtral_8x7b_32": lambda: definitions.mixtral_8x7b(32)}


def models():
    """The functions without a parameter that must be given."""
    functions = {name: f for name, f in vars(definitions).items() if inspect.isfunction(f) and f.__module__ == definitions.__name__}
    return {name: f for name, f in functions.items() if all(p.default is not p.empty for p in inspect.signature(f).parameters.values())}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="which; all by default")
    parser.add_argument("--out", type=Path, help="another folder for all of them")
    options = parser.parse_args(arguments)
    for package, release in RELEASES.items():
        if (found := importlib.metadata.version(package)) != release:
            sys.exit(f"make_graphs: {package} is {found}, expected {release}")
    warnings.filterwarnings("ignore")  # of configurations
    for name, factory in {**models(), **SHIPPED}.items():
        if options.names and name not in options.names:
            continue
        folder = options.out or (HERE.parents[1] / "examples/models" if name in SHIPPED else HERE)
        with torch.device("meta"):
            module, inputs = factory()
        path = folder / f"{name}.pt2.gz"
        export_pt2.save_graph(export_pt2.export(module, inputs), path)
        print(f"{path}: {path.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
