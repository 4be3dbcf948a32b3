#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Write the training graph of a PyTorch module as a Heddle model file (format heddle.model).

    export_fx.py MODULE:FACTORY --out model.json.gz [--name NAME] [--meta]
    export_fx.py vit_12 --out vit_12.json.gz        a model of examples/models/definitions.py
    export_fx.py --all [DIRECTORY]                  all of them, into examples/models by default

MODULE is a module name or the path of a .py file. FACTORY() returns (module, inputs): a torch.nn.Module whose forward
returns the scalar loss, and a dict of example inputs (argument name -> tensor) with the real global batch. Nothing is
computed: shapes are found on the meta device. With --meta the factory itself runs there too, so that a model
of any size takes no memory.

The module is traced through torch.fx down to functional operators. Python values (sizes, flags, layer counts) are folded; a
value that depends on a tensor's contents is an error. Hide what cannot be traced in a function of its own:

    @torch.fx.wrap
    def my_scale(x, weight): ...
    my_scale.heddle_target = "my.scale"                      # optional: its name in the file
    my_scale.heddle_rule = "(b d), (d) -> (b d); 0*1"        # optional: its index rule

As a library: model = export(module, inputs, name); write(model, path).
"""

import argparse
import contextlib
import gzip
import importlib
import importlib.util
import io
import json
import math
import os
import sys
import traceback
from pathlib import Path

try:
    import torch

    import training_tracer
    from training_tracer import ExportError, KnownContents, TrainingTracer, display_name, first_line
except ImportError as error:
    if __name__ == "__main__":
        sys.exit(f"export_fx: this script needs PyTorch: {error}")
    raise

FORMAT = "heddle.model"
VERSION = 1
SHIPPED_DIRECTORY = Path(__file__).resolve().parents[2] / "examples" / "models"


# --------------------------------------------------------------------------------------------------------- writing


def export(module, inputs, name=None, tracer=TrainingTracer):
    """The model file of `module` as a dict; `inputs` maps the names of forward's arguments to example tensors.

    Raises ExportError. The module and its tensors are not changed, its own training mode is kept."""
    tracer = tracer(inputs)
    try:
        with KnownContents(tracer):
            graph = tracer.trace(module)
        nodes = describe(tracer, graph)
    except Exception as error:
        raise ExportError(one_line(tracer, error)) from error
    batch = {value.shape[:1] for value in inputs.values() if isinstance(value, torch.Tensor)}
    meta = {
        "model": name or type(module).__name__,
        "mode": "train" if module.training else "eval",
        "n_nodes": len(nodes),
        "n_params": sum(math.prod(node["out"]["shape"]) for node in nodes if node["op"] == "parameter"),
        "source": f"export_fx.py, torch {torch.__version__}",
    }
    if len(batch) == 1 and batch != {torch.Size()}:
        meta["global_batch"] = batch.pop()[0]
    model = {"format": FORMAT, "version": VERSION, "meta": meta}
    if tracer.rules:
        model["rules"] = dict(sorted(tracer.rules.items()))
    return {**model, "nodes": nodes}


def describe(tracer, graph):
    output = next(node for node in graph.nodes if node.op == "output")
    loss = output.args[0]
    if not isinstance(loss, torch.fx.Node) or not isinstance(tracer.values[loss], torch.Tensor):
        kind = "tuple" if isinstance(loss, torch.fx.Node) else type(loss).__name__.removeprefix("immutable_")
        raise ExportError(f"forward returns a {kind}; expected one tensor, the scalar loss")
    value = tracer.values[output] = tracer.values[loss]
    if value.shape != () or not value.dtype.is_floating_point:
        raise ExportError(f"forward returns a {str(value.dtype)[6:]} tensor of shape {list(value.shape)}; expected the scalar loss")

    used, open_nodes = set(), [output]
    while open_nodes:
        node = open_nodes.pop()
        if node not in used:
            used.add(node)
            open_nodes.extend(node.all_input_nodes)
    kept = [node for node in graph.nodes if node in used or node.op == "placeholder"]
    number = {node: i for i, node in enumerate(kept)}
    return [describe_node(tracer, node, number) for node in kept]


def describe_node(tracer, node, number):
    operands = []

    def literal(a):
        if isinstance(a, torch.fx.Node):
            operands.append(number[a])
            return {"node": number[a]}
        if isinstance(a, (tuple, list)):
            return [literal(item) for item in a]
        if isinstance(a, slice):
            return {"slice": [literal(a.start), literal(a.stop), literal(a.step)]}
        if a is ...:
            return {"ellipsis": True}
        if isinstance(a, (torch.dtype, torch.memory_format, torch.layout)):
            return str(a).removeprefix("torch.")
        if isinstance(a, float) and not math.isfinite(a):
            return {"float": str(a)}
        if a is None or isinstance(a, (bool, int, float, str)):
            return a
        raise ExportError(f"{display_name(node.target)} has an argument of type {type(a).__name__}, which cannot be written")

    args = literal(node.args)
    kwargs = {name: literal(a) for name, a in node.kwargs.items()}
    op, target = node.op, node.target
    entry = {}
    if op == "get_attr":
        kind, requires_grad = tracer.sources[node]
        op = "parameter" if kind == "parameter" else "buffer"
        if op == "parameter":
            entry["requires_grad"] = requires_grad
    elif op == "call_function":
        target = display_name(target)
        if hasattr(node.target, "heddle_rule"):
            tracer.rules[target] = node.target.heddle_rule
    return {"id": number[node], "name": node.name, "op": op, "target": target, "inputs": operands, "args": args,
            "kwargs": kwargs, "out": describe_value(tracer.values[node]), **entry}


ELEMENT_TYPES = {getattr(torch, name): name for name in ("float16", "bfloat16", "float32", "float64", "int8", "int32", "int64", "bool")}
ELEMENT_TYPES[torch.uint8] = "int8"  # of the same size


def describe_value(value):
    if isinstance(value, torch.Tensor):
        if value.dtype not in ELEMENT_TYPES:
            raise ExportError(f"a tensor has elements of type {str(value.dtype).removeprefix('torch.')}, which a model file cannot hold")
        return {"kind": "tensor", "shape": list(value.shape), "dtype": ELEMENT_TYPES[value.dtype]}
    if isinstance(value, (tuple, list)):
        return {"kind": "tuple", "items": [describe_value(item) for item in value]}
    return {"kind": "value", "value": value}


def one_line(tracer, error):
    own = (os.path.dirname(torch.__file__), __file__, training_tracer.__file__)
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((f for f in reversed(frames) if not f.filename.startswith(own)), None)
    place = f"module '{tracer.module}'" if tracer.module else "forward"
    if frame:
        place += f", {os.path.basename(frame.filename)}:{frame.lineno}"
    text = first_line(error)
    return f"{place}: {text if isinstance(error, ExportError) else f'{type(error).__name__}: {text}'}"


def encode(model):
    """The text of a model file: the head in one line, then one node a line."""
    text = lambda part: json.dumps(part, separators=(",", ":"), allow_nan=False)
    head = text({key: part for key, part in model.items() if key != "nodes"})
    return head[:-1] + ',"nodes":[\n' + ",\n".join(text(node) for node in model["nodes"]) + "\n]}\n"


def write(model, path):
    """Write `model` to `path`, compressed when it ends in .gz. The same model gives the same bytes."""
    data = encode(model).encode()
    if str(path).endswith(".gz"):
        buffer = io.BytesIO()
        with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=buffer, mtime=0) as file:
            file.write(data)
        data = buffer.getvalue()
    beside = f"{path}.part"
    try:
        Path(beside).write_bytes(data)
        os.replace(beside, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise ExportError(f"{path}: {error.strerror}") from error


# ---------------------------------------------------------------------------------------------------- command line


def meta_device():
    """A context in which tensors are created on the meta device unless a device is named."""
    if hasattr(torch.device("meta"), "__enter__"):
        return torch.device("meta")

    makers = {getattr(torch, name) for name in ("empty", "zeros", "ones", "full", "rand", "randn", "randint", "randperm", "arange",
                                                "linspace", "eye", "tensor", "empty_strided")}

    class OnMeta(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if function in makers and kwargs.get("device") is None:
                kwargs["device"] = "meta"
            return function(*args, **kwargs)

    return OnMeta()


def load(module):
    """Import a module by name or from the path of its file."""
    try:
        if module.endswith(".py"):
            name = Path(module).stem
            spec = importlib.util.spec_from_file_location(name, module)
            loaded = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(loaded)
            return loaded
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(module)
    except Exception as error:
        raise ExportError(f"{module}: cannot be imported: {first_line(error)}") from error


def build(factory, where, meta):
    try:
        with meta_device() if meta else contextlib.nullcontext():
            built = factory()
    except Exception as error:
        raise ExportError(f"{where}: the factory failed: {type(error).__name__}: {first_line(error)}") from error
    if not (isinstance(built, tuple) and len(built) == 2 and isinstance(built[0], torch.nn.Module) and isinstance(built[1], dict)):
        raise ExportError(f"{where}: the factory returned a {type(built).__name__}; expected (torch.nn.Module, dict of inputs)")
    return built


def shipped_models():
    return load(str(SHIPPED_DIRECTORY / "definitions.py")).MODELS


def find_factory(text):
    """(factory, name, whether it is one of the shipped models)"""
    module, colon, name = text.rpartition(":")
    if not colon:
        models = shipped_models()
        if name not in models:
            raise ExportError(f"{text}: unknown model; expected MODULE:FACTORY or one of {', '.join(models)}")
        return models[name], name, True
    factory = getattr(load(module), name, None)
    if not callable(factory):
        raise ExportError(f"{module}: has no function '{name}'")
    return factory, name, False


def export_to_file(text, path, name, meta):
    factory, found, shipped = find_factory(text)
    module, inputs = build(factory, text, meta or shipped)
    try:
        model = export(module, inputs, name or found)
    except ExportError as error:
        raise ExportError(f"{text}: {error}") from error
    write(model, path)
    print(f"{path}: {model['meta']['n_nodes']} nodes, {model['meta']['n_params']} parameters")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="MODULE:FACTORY, or the name of a shipped model")
    parser.add_argument("--out", metavar="FILE", help="the model file to write; compressed when it ends in .gz")
    parser.add_argument("--name", help="the model's name in the file; default: the factory's")
    parser.add_argument("--meta", action="store_true", help="run the factory on the meta device (always so for shipped models)")
    parser.add_argument("--all", metavar="DIRECTORY", nargs="?", const=SHIPPED_DIRECTORY, help="write all shipped models")
    options = parser.parse_args(arguments)
    if bool(options.all) == bool(options.model) or bool(options.model) != bool(options.out):
        parser.error("expected a model and --out FILE, or --all")
    try:
        if options.model:
            export_to_file(options.model, options.out, options.name, options.meta)
        else:
            for name in shipped_models():
                export_to_file(name, os.path.join(options.all, f"{name}.json.gz"), name, True)
    except ExportError as error:
        print(f"export_fx: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
