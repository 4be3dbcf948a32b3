#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Save the training graph of a PyTorch module as an archive that `heddle plan --model` reads (torch.export, from PyTorch 2.6 on).

    export_pt2.py MODULE:FACTORY --out model.pt2
    export_pt2.py vit_12 --out vit_12.pt2           a model of examples/models/definitions.py
    export_pt2.py vit_12 --out vit_12.pt2.gz        its graph alone, a few kilobytes: no weights, no lines of source

MODULE is a module name or the path of a .py file. FACTORY() returns (module, inputs): a torch.nn.Module, and a dict of
example inputs (argument name -> tensor, or a value that is none) with the real global batch. The module returns the scalar
loss, or an object or dict with `loss`, or a tuple that begins with it. Everything runs on the meta device: nothing is
computed, and a model of any size takes no memory. Code that asks for the contents of a tensor cannot be exported.

As a library: program = export(module, inputs); torch.export.save(program, path) or save_graph(program, path).
"""

import argparse
import gzip
import io
import json
import os
import sys
import zipfile

import export_fx
from export_fx import ExportError, build, find_factory, first_line

try:
    import torch
    from torch.export import export as export_program
    from torch.export import save
except ImportError as error:
    sys.exit(f"export_pt2: this script needs PyTorch 2.6 or newer: {error}")


def loss_of(module, arguments, result):
    """What a module returns, reduced to its loss: a forward hook, which leaves the names of parameters as they are."""
    if isinstance(result, dict):
        return result["loss"]
    if hasattr(result, "loss"):
        return result.loss
    return result[0] if isinstance(result, (tuple, list)) else result


def export(module, inputs):
    """The exported program of `module` in training mode with its loss as the only output. Raises ExportError."""
    on_meta = {name: value.to("meta") if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}
    module = module.to("meta").train()
    hook = module.register_forward_hook(loss_of)
    try:
        with torch.device("meta"):
            program = export_program(module, (), kwargs=on_meta, strict=False)
    except Exception as error:
        raise ExportError(f"cannot be exported: {type(error).__name__}: {first_line(error)}") from error
    finally:
        hook.remove()
    outputs = [node for node in program.graph.nodes if node.op == "output"][0].args[0]
    loss = outputs[-1].meta.get("val") if hasattr(outputs[-1], "meta") else None
    if not isinstance(loss, torch.Tensor) or loss.dim() != 0 or not loss.dtype.is_floating_point:
        raise ExportError("returns no loss: expected a scalar of a floating-point type")
    return program


def graph_of(program):
    """What torch.export.save writes of a program as its graph (models/model.json), without the lines of source that made each node."""
    archive = io.BytesIO()
    save(program, archive)
    with zipfile.ZipFile(archive) as entries:
        graph = json.loads(entries.read(next(name for name in entries.namelist() if name.endswith("models/model.json"))))

    def strip(part):
        if isinstance(part, dict):
            if "target" in part and "metadata" in part:
                part["metadata"] = {key: text for key, text in part["metadata"].items() if key == "nn_module_stack"}
            for value in part.values():
                strip(value)
        elif isinstance(part, list):
            for item in part:
                strip(item)

    strip(graph)
    graph["guards_code"] = []
    return graph


def save_graph(program, path):
    """An archive of the graph alone, in gzip: the same program is the same bytes."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as entries:
        for name, text in (("archive_format", "pt2"), ("archive_version", "0"), ("models/model.json", json.dumps(graph_of(program), separators=(",", ":")))):
            entries.writestr(zipfile.ZipInfo(f"graph/{name}"), text)
    with open(path, "wb") as file:
        file.write(gzip.compress(archive.getvalue(), mtime=0))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="MODULE:FACTORY, or the name of a shipped model")
    parser.add_argument("--out", metavar="FILE", required=True, help="the archive to write; NAME.pt2.gz holds the graph alone")
    options = parser.parse_args(arguments)
    beside = f"{options.out}.part.pt2"
    try:
        factory, _, _ = find_factory(options.model)
        module, inputs = build(factory, options.model, meta=True)
        try:
            program = export(module, inputs)
        except ExportError as error:
            raise ExportError(f"{options.model}: {error}") from error
        (save_graph if options.out.endswith(".gz") else save)(program, beside)
        os.replace(beside, options.out)
    except (ExportError, OSError) as error:
        print(f"export_pt2: {error}", file=sys.stderr)
        return 1
    trained = {id(p): p.numel() for p in program.state_dict.values() if p.requires_grad}
    print(f"{options.out}: {len(program.graph.nodes)} nodes, {sum(trained.values())} parameters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
