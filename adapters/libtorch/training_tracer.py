# SPDX-License-Identifier: BSL-1.0
"""Traces the training graph of a PyTorch module through torch.fx: every value is known on the meta device, so that Python code sees sizes."""

import functools
import inspect
import itertools
import operator
import re
import types
import unittest.mock

import torch
import torch.fx
from torch.fx.node import map_aggregate
from torch.fx.operator_schemas import normalize_function


class ExportError(Exception):
    """The module cannot be exported; the text is one line that says what is wrong and where."""


INDEX_ASSIGNMENT = "a tensor is changed by assignment to an index; use torch.where, torch.cat or masked_fill"
WRITTEN = "a tensor made in forward, or a view of it, is read after a traced value was written into it in place; write y = y + value"


class TracedValue(torch.fx.Proxy):
    """A proxy that knows its value on the meta device, so that everything but tensor contents is concrete."""

    def __init__(self, node, tracer, value):
        super().__init__(node, tracer)
        self.value = value
        self.version = tracer.storage_version(value)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        attribute = getattr(self.value, name)
        if callable(attribute):
            return lambda *args, **kwargs: self.tracer.create_proxy("call_method", name, (self, *args), kwargs)
        if isinstance(attribute, torch.Tensor):
            return self.tracer.create_proxy("call_function", getattr, (self, name), {})
        return attribute

    def __getitem__(self, index):
        return self.tracer.create_proxy("call_function", operator.getitem, (self, index), {})

    def __abs__(self):
        return self.abs()

    def __len__(self):
        return len(self.value)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __setitem__(self, index, value):
        raise ExportError(INDEX_ASSIGNMENT)

    def _needs_contents(self):
        raise ExportError("the contents of a tensor are needed as a Python value (data-dependent control flow)")

    __bool__ = __int__ = __float__ = __index__ = __complex__ = _needs_contents


class TracedTuple(tuple):
    """The proxies of a call's several results, by number or by PyTorch's name for them (torch.max(x, 1).values)."""

    def __new__(cls, node, value, items):
        self = super().__new__(cls, items)
        self.node, self.value = node, value
        return self

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        attribute = getattr(self.value, name)
        return self[next(i for i, item in enumerate(self.value) if item is attribute)]


def _in_place(name):
    def operation(self, other):
        result = getattr(self, f"__{name}__")(other)
        return self.tracer.replace(self, result if result.value.dtype == self.value.dtype else result.to(self.value.dtype))

    return operation


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"):
    setattr(TracedValue, f"__i{_name}__", _in_place(_name))


class KnownContents(torch.overrides.TorchFunctionMode):
    """Refuses to read a tensor made in forward once traced values were written into it: its contents are no longer known."""

    READERS = ("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__", "__contains__")

    def __init__(self, tracer):
        super().__init__()
        self.tracer = tracer

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        reads = function.__name__ in self.READERS or any(isinstance(item, torch.Tensor) for item in flat(result))
        if reads and any(self.tracer.is_written(item) for item in flat((*args, *(kwargs or {}).values()))):
            raise ExportError(WRITTEN)
        return result


class TrainingTracer(torch.fx.Tracer):
    """Traces forward into functional operators only; one node per parameter and buffer, by identity."""

    def __init__(self, inputs):
        super().__init__()
        self.inputs = inputs
        self.module = ""  # dotted path of the innermost module being traced
        self.values = {}  # node -> its value on the meta device
        self.sources = {}  # parameter or buffer node -> (kind, requires_grad)
        self.source_names = set()
        self.rules = {}  # exported target -> index rule
        self.known = {}  # id of a real tensor -> (the tensor, its proxy)
        self.versions = {}  # storage on the meta device -> (number of in-place changes, what was changed last, to what)
        self.written = {}  # storage of a real tensor into which traced values were written -> that tensor

    def trace(self, root, concrete_args=None):
        # A helper of release 2 that takes nothing but tensors, before the function that uses it is seen.
        with unittest.mock.patch.object(torch.nn.functional, "_none_or_dtype", lambda a: None if a is None else a.dtype, create=True):
            return super().trace(root, concrete_args)

    # What torch.fx calls.

    def create_args_for_root(self, root_fn, is_module, concrete_args=None):
        self.names = {}
        for kind, named in (("parameter", self.root.named_parameters()), ("buffer", self.root.named_buffers())):
            for path, tensor in named:
                self.names.setdefault(id(tensor), (kind, path))
        try:
            bound = inspect.signature(root_fn).bind(self.root, **self.inputs)
        except TypeError as error:
            raise ExportError(f"the inputs do not fit forward{inspect.signature(root_fn)}: {error}") from error
        order = [name for name in bound.signature.parameters if name in self.inputs]
        order += [name for name in self.inputs if name not in order]
        arguments = {}
        for name in order:
            value = self.inputs[name]
            if isinstance(value, torch.Tensor):
                node = self.create_node("placeholder", self.source_name(name), (), {}, name)
                value = self.record(node, on_meta(value))
            elif not isinstance(value, (bool, int, float, str, type(None))):
                raise ExportError(f"input '{name}' is a {type(value).__name__}; expected a tensor or a plain value")
            arguments[name] = value
        return (lambda root: root_fn(root, **arguments)), [self.root]

    def is_leaf_module(self, m, module_qualified_name):
        return False

    def call_module(self, m, forward, args, kwargs):
        outer, self.module = self.module, self.submodule_paths.get(m, type(m).__name__)
        if isinstance(m, torch.nn.SyncBatchNorm):  # a plan's batch norms are of the whole batch anyway
            forward = functools.partial(torch.nn.modules.batchnorm._BatchNorm.forward, m)
        result = forward(*args, **kwargs)
        self.module = outer  # not after an exception: the error report names the innermost module
        return result

    def getattr(self, attr, attr_val, parameter_proxy_cache):
        return self.source(attr_val) if isinstance(attr_val, torch.Tensor) else attr_val

    _module_getattr = getattr  # its name in older releases

    def create_arg(self, a):
        if isinstance(a, TracedValue):
            self.check_current(a)
        if isinstance(a, TracedTuple):
            a = tuple(a)
        return self.source(a).node if isinstance(a, torch.Tensor) else super().create_arg(a)

    def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None, proxy_factory_fn=None):
        if target is torch._assert:
            return None
        kwargs = dict(kwargs)
        if kind == "call_method" and target in ("cpu", "cuda", "contiguous", "to"):
            # Devices and memory layouts are no part of a model.
            args = tuple(a for a in args if not isinstance(a, (torch.device, torch.memory_format, str)))
            kwargs = {name: a for name, a in kwargs.items() if name == "dtype"}
            if target == "contiguous":
                return TracedValue(args[0].node, self, args[0].value.contiguous())
            if target != "to" or len(args) + len(kwargs) == 1:
                return args[0]
        kwargs.pop("device", None)
        if kind == "call_function" and target.__module__.startswith("torchvision.models."):
            return target(*args, **kwargs)  # wrapped against tracers that do not know sizes
        if kind == "call_function" and is_in_place(target) and hasattr(torch.Tensor, target.__name__):
            kind, target, args = "call_method", target.__name__, args or (kwargs.pop("input"),)
        if target == "__setitem__":
            raise ExportError(INDEX_ASSIGNMENT)
        if target in KNOWN_CONTENTS:
            like, *rest = args or (kwargs.pop("input"),)
            if isinstance(like, TracedValue) and not any(isinstance(a, TracedValue) for a in (*rest, *kwargs.values())):
                like = torch.empty((), dtype=like.value.dtype).expand(like.value.shape)
                return getattr(like, target)(*rest, **kwargs) if kind == "call_method" else target(like, *rest, **kwargs)
        if target is operator.getitem and isinstance(args[0], TracedValue):
            args = (args[0], with_places(args[1]))
            slices = single_slices(args[1], args[0].value.dim())
            if len(slices) > 1:
                return functools.reduce(operator.getitem, slices, args[0])
        if not torch.is_grad_enabled():
            raise ExportError("torch.no_grad() inside forward cannot be exported; use Tensor.detach()")
        if is_autocasting():
            raise ExportError("torch.autocast inside forward cannot be exported; use Tensor.to, or another element type for the whole model")
        if kwargs.get("out") is not None:
            raise ExportError(f"{display_name(target)} is called with out=; use its result instead")

        if target in COMPOSITES:
            return COMPOSITES[target](*args, **kwargs)
        if kind == "call_method" and target in ("zero_", "fill_") and not isinstance((*args[1:], 0)[0], TracedValue):
            return self.replace(args[0], self.source(torch.zeros((), dtype=args[0].value.dtype).expand(args[0].value.shape)))

        value = self.evaluate(kind, target, args, kwargs)
        if not any(isinstance(item, torch.Tensor) for item in flat(value)):
            return value

        changed = None
        if is_in_place(target):
            changed, target = args[0] if args else kwargs["input"], new_tensor_by(target)
        elif kind == "call_method" and value is getattr(args[0], "value", None) or target is operator.getitem and is_whole(args[0], value):
            return args[0]
        if kind == "call_function":
            args, kwargs = normalised(target, args, kwargs)
            kwargs.pop("device", None)
            if kwargs.get("inplace") is True:
                changed = kwargs.get("input", args[0] if args else None)
        node = self.create_node(kind, target, self.create_arg(args), self.create_arg(kwargs), name)
        result = self.record(node, value)
        return result if changed is None else self.replace(changed, result)

    # What those need.

    def record(self, node, value):
        self.values[node] = value
        if not isinstance(value, tuple):
            return TracedValue(node, self, value)
        return TracedTuple(node, value, [self.item_of(node, index, item) for index, item in enumerate(value)])

    def source(self, tensor):
        """The proxy of a parameter, a buffer or a constant: one for each tensor object."""
        if id(tensor) not in self.known:
            if self.is_written(tensor):
                raise ExportError(WRITTEN)
            kind, path = self.names.get(id(tensor), ("buffer", self.tensor_attrs.get(tensor)))
            if isinstance(tensor, torch.nn.Parameter) and kind != "parameter":
                raise ExportError("a parameter is used that is not registered in the module")
            if path is None:
                path = f"constant_{sum(kind == 'constant' for kind, _ in self.sources.values())}"
                kind = "constant"
            node = self.create_node("get_attr", self.source_name(path), (), {})
            self.sources[node] = (kind, tensor.requires_grad)
            self.known[id(tensor)] = (tensor, self.record(node, on_meta(tensor)))
        return self.known[id(tensor)][1]

    def source_name(self, name):
        """A name that no other source has: a parameter may be called as an argument of forward is."""
        unused = next(n for n in itertools.chain([name], (f"{name}_{k}" for k in itertools.count(1))) if n not in self.source_names)
        self.source_names.add(unused)
        return unused

    def item_of(self, whole, index, value):
        if not any(isinstance(item, torch.Tensor) for item in flat(value)):
            return value
        return self.record(self.create_node("call_function", operator.getitem, (whole, index), {}), value)

    def evaluate(self, kind, target, args, kwargs):
        def on_meta_device(a):
            if isinstance(a, torch.Tensor):
                a = self.source(a)
            return a.value if isinstance(a, TracedValue) else a

        args, kwargs = map_aggregate(args, on_meta_device), map_aggregate(kwargs, on_meta_device)
        try:
            with torch.no_grad():
                if target in META_SHAPES:
                    return META_SHAPES[target](*args, **kwargs)
                if is_in_place(target) and args:
                    args = (args[0][...], *args[1:])  # a view, which may be given another shape
                result = target(*args, **kwargs) if kind == "call_function" else getattr(args[0], target)(*args[1:], **kwargs)
        except ExportError:
            raise
        except Exception as error:
            name = display_name(target)
            missing = re.search(r"Could not run '(aten::\w+)", str(error))
            asks = re.search(r"data-independent|\.item\(\) cannot be called on meta", str(error))  # as release 2 says it
            if asks or missing and missing[1] in ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::_unique2"):
                raise ExportError(f"{name} needs the contents of a tensor (data-dependent control flow or shape)") from error
            if missing:
                raise ExportError(f"{name} cannot be run on the meta device; hide it in a function under torch.fx.wrap "
                                  "that computes its shape there") from error
            raise ExportError(f"{name}: {first_line(error)}") from error
        return tuple(result) if isinstance(result, list) else result

    # In-place changes. The file knows values, not storage: the changed tensor's proxy goes over to the new value. Another
    # name for the same storage goes over, when it is used, where both are the same elements in the same order or what was
    # changed is a slice of it; else that is an error, as it is for a name that autograd does not know for one (detach, data).

    def storage_version(self, value):
        return self.versions.get(storage_of(value), (0,))[0] if isinstance(value, torch.Tensor) else 0

    def is_written(self, item):
        return bool(self.written) and isinstance(item, torch.Tensor) and storage_of(item) in self.written

    def replace(self, changed, result):
        proxy = changed if isinstance(changed, TracedValue) else self.source(changed)
        if proxy is not changed:
            self.written[storage_of(changed)] = changed
        proxy.node, before = result.node, proxy.value
        if storage_of(before) == storage_of(result.value):
            proxy.value = result.value
            if (before.shape, before.stride()) != (result.value.shape, result.value.stride()):
                return proxy  # the view alone, as by unsqueeze_
        self.versions[storage_of(before)] = (self.storage_version(before) + 1, before, result)
        proxy.version, result.version = self.storage_version(before), self.storage_version(result.value)
        return proxy

    def check_current(self, proxy):
        version = self.storage_version(proxy.value)
        if proxy.version == version:
            return
        _, changed, new = self.versions[storage_of(proxy.value)]
        changed_once, proxy.version = version == proxy.version + 1, version
        found = self.value_through(proxy, changed, new, changed_once) if root_of(changed) is root_of(proxy.value) else None
        if found is None:
            raise ExportError(f"'{proxy.node.name}' shares its storage with a tensor that was changed in place since")
        proxy.node = found.node

    def value_through(self, proxy, changed, new, changed_once):
        """What a tensor holds since another name for its storage was changed to `new`; None where that is not known."""
        value, same_start = proxy.value, changed.storage_offset() == proxy.value.storage_offset()
        if same_start and (changed.shape, changed.stride()) == (value.shape, value.stride()):
            return new
        if same_start and changed.is_contiguous() and value.is_contiguous() and changed.numel() == value.numel():
            return new.reshape(value.shape)
        found = slice_in(changed, value) if changed_once else None
        if found is None:
            return None
        axis, first, end = found
        before, after = (proxy[(*[slice(None)] * axis, part)] for part in (slice(0, first), slice(end, value.shape[axis])))
        return torch.cat([piece for piece in (before, new, after) if piece.value.shape[axis] > 0], axis)


def is_autocasting():
    try:
        return any(torch.is_autocast_enabled(device) for device in ("cuda", "cpu"))
    except TypeError:  # releases before 2.4
        return torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled()


def on_meta(tensor):
    return tensor.detach().to("meta").requires_grad_(tensor.requires_grad)


def storage_of(tensor):
    """The same for tensors that share their elements."""
    return (tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage())._cdata


def root_of(tensor):
    return tensor if tensor._base is None else tensor._base


def is_whole(of, view):
    shared = isinstance(of, TracedValue) and storage_of(view) == storage_of(of.value)
    return shared and (view.shape, view.stride()) == (of.value.shape, of.value.stride())


def with_places(index):
    """An index with a tensor for each list of places, which the file does not tell from a tuple."""
    if isinstance(index, tuple):
        return tuple(map(with_places, index))
    return torch.tensor(index) if isinstance(index, list) and all(isinstance(i, int) for i in index) else index


def single_slices(index, rank):
    """The slices of an index, each alone, as ATen applies them; nothing if there is anything else in it."""
    if not isinstance(index, tuple) or not all(isinstance(i, slice) or i is ... for i in index):
        return []
    if ... in index:
        at = index.index(...)
        index = (*index[:at], *[slice(None)] * (rank + 1 - len(index)), *index[at + 1:])
    return [(*[slice(None)] * d, i) for d, i in enumerate(index) if i != slice(None)]


def slice_in(part, whole):
    """Where a slice along one dimension lies in a tensor whose storage it shares: (dimension, first, end); None for another part."""
    if not whole.is_contiguous() or part.stride() != whole.stride():
        return None
    axes = [d for d in range(whole.dim()) if part.shape[d] != whole.shape[d]]
    first, rest = divmod(part.storage_offset() - whole.storage_offset(), whole.stride(axes[0])) if len(axes) == 1 else (-1, 0)
    end = first + part.shape[axes[0]] if first >= 0 else 0
    return (axes[0], first, end) if rest == 0 and 0 <= first < end <= whole.shape[axes[0]] else None


def is_in_place(target):
    if isinstance(target, types.BuiltinFunctionType) and target.__module__ != "_operator":
        target = target.__name__
    return isinstance(target, str) and re.search("[^_]_$", target) is not None


def new_tensor_by(target):
    """The operator that returns a new tensor where this one changes its first argument."""
    name = target if isinstance(target, str) else target.__name__
    home = torch.Tensor if isinstance(target, str) else torch.nn.functional if target.__module__ == "torch._C._nn" else torch
    plain = getattr(home, name[:-1], None)
    if not callable(plain):
        raise ExportError(f"{name}, which works in place, has no counterpart that returns a new tensor")
    return name[:-1] if isinstance(target, str) else plain


def flat(value):
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from flat(item)
    else:
        yield value


def normalised(target, args, kwargs):
    """Arguments by name, defaults filled in, where the signature allows only one reading; else as they were written."""
    if getattr(target, "__module__", None) in ("_operator", "builtins"):
        return args, kwargs
    try:
        found = normalize_function(target, args, kwargs, normalize_to_only_use_kwargs=True)
    except (RuntimeError, TypeError, ValueError):
        return args, kwargs
    return (args, kwargs) if found is None else (found.args, dict(found.kwargs))


def _loss_shape(input, target, *args, reduction="mean", **kwargs):
    labels = (*input.shape[:1], *input.shape[2:]) if input.dim() > 1 else ()  # without the classes
    return torch.empty(labels if reduction == "none" else (), dtype=input.dtype, device="meta")


def _one_hot_shape(tensor, num_classes=-1):
    if num_classes < 0:
        raise ExportError("torch.nn.functional.one_hot needs num_classes here: it depends on the contents of a tensor")
    return torch.empty((*tensor.shape, num_classes), dtype=torch.int64, device="meta")


def _repeat_interleave_shape(input, repeats, dim=None, *, output_size=None):
    if isinstance(repeats, torch.Tensor) and output_size is None:
        raise ExportError("repeat_interleave needs output_size here: it depends on the contents of a tensor")
    shape = [input.numel()] if dim is None else list(input.shape)
    axis = dim or 0
    shape[axis] = shape[axis] * repeats if output_size is None else output_size
    return input.new_empty(shape)


def _normalize(input, p=2.0, dim=1, eps=1e-12, out=None):
    return input.div(input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input))


def _swapaxes(input, axis0, axis1):
    return input.transpose(axis0, axis1)


def _cosine_similarity(x1, x2, dim=1, eps=1e-8):
    x1, x2 = (x.expand(torch.broadcast_shapes(x1.shape, x2.shape)) for x in (x1, x2))
    norms = [x.norm(2, dim).clamp_min(eps) for x in (x1, x2)]
    return (x1 * x2).sum(dim) / (norms[0] * norms[1])


def _softmin(input, dim=None, _stacklevel=3, dtype=None):
    return torch.softmax(-input, dim, dtype=dtype)


def _weight_norm(v, g, dim=0):
    """The direction of `v` by dimension `dim`, of all of it where that is -1, and the length `g`."""
    others = list(range(v.dim())) if dim == -1 else [d for d in range(v.dim()) if d != dim]
    return v * (g / v.square().sum(others, keepdim=dim != -1).sqrt())


# Functions written out in others, as ATen does.
COMPOSITES = {
    torch.nn.functional.normalize: _normalize,
    torch.nn.functional.cosine_similarity: _cosine_similarity,
    torch.nn.functional.softmin: _softmin,
    torch.swapaxes: _swapaxes,
    torch._weight_norm: _weight_norm,
}

# What makes a tensor whose contents are known while tracing.
KNOWN_CONTENTS = ("new_zeros", "new_ones", "new_full", torch.zeros_like, torch.ones_like, torch.full_like)

# Operators without a shape function of their own on the meta device in some supported release.
META_SHAPES = {
    torch.nn.functional.nll_loss: _loss_shape,
    torch.nn.functional.cross_entropy: _loss_shape,
    torch.nn.functional.one_hot: _one_hot_shape,
    torch.repeat_interleave: _repeat_interleave_shape,
    "repeat_interleave": _repeat_interleave_shape,
}


def display_name(target):
    """The qualified name of an operator, as it stands in the file."""
    if isinstance(target, str):
        return target
    if hasattr(target, "heddle_target"):
        return target.heddle_target
    for home in (torch, torch.nn.functional, torch.linalg, torch.fft, torch.special):
        public = target.__name__.removeprefix(home.__name__.removeprefix("torch.") + "_")
        if isinstance(target, types.BuiltinFunctionType) and getattr(home, public, None) is target:
            return f"{home.__name__}.{public}"
    return torch.fx.node._get_qualified_name(target).replace("_operator.", "operator.")


def first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0]
