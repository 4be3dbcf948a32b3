# SPDX-License-Identifier: BSL-1.0
"""Applies a plan of Heddle to an nn.Module: the ranks of a process group hold and compute what the plan's devices do.

Plans are read as `heddle export --to dtensor --model M` writes them. Even shares become DTensor placements, parallelize_module and
fully_shard; DTensor cuts equal chunks, so uneven shares are cut and exchanged by this package itself.
"""
from .apply import apply, applied_plan
from .plans import read_plan

__all__ = ["applied_plan", "apply", "read_plan"]
