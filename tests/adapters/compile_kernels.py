"""Compiles every Triton program for a GPU that need not be there, and traces calls of all kernels.

The interpreter checks no types, computes what no compiler would accept, and cannot be traced.

    python compile_kernels.py
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.utils._triton
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import cactus_rules as cr
from cactus_rules.adapters import kernels
from cactus_rules.adapters.kernels import clip, inputs, programs
from cactus_rules.adapters.torch import verify

TARGET = GPUTarget("cuda", 90, 32)

INTEGERS = {
    name: "*i64"
    for name in ("floor_id_ptr", "token_ptr", "flags_ptr", "length_ptr", "best_id_ptr", "stop_ptr",
                 "last_ptr", "status_ptr", "seeds_ptr", "steps_ptr")
} | {"bad_ptr": "*i32", "used_ptr": "*i32"}  # fmt: skip


def compiled(program: Any, rows: str, num_warps: int, **constants: Any) -> Any:
    """A program for rows of a dtype, compiled with the options of `launch`."""
    types = {"draft_ptr": f"*{rows}", "target_ptr": f"*{rows}", "logits_ptr": f"*{rows}"}
    types |= INTEGERS | {"rounding": "fp32"}
    signature = {
        name: "constexpr" if name in constants
        else types.get(name, "*fp64" if name.endswith("_ptr") else "i32")
        for name in program.arg_names
    }  # fmt: skip
    options = {"num_warps": num_warps, "enable_fp_fusion": False}
    source = ASTSource(program, signature, constexprs=constants)
    return triton.compile(source, target=TARGET, options=options)


class TracedError(Exception):
    """The graph of a call, in the place of its answer."""


def launches(rule: cr.Rule, logits: bool) -> int:
    """Launches in the one graph that Dynamo makes of a call with kernels."""

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        names = [getattr(node.target, "__name__", "") for node in graph.graph.nodes]

        def stop(*_: Any) -> None:
            raise TracedError(names.count("triton_kernel_wrapper_mutation"))

        return stop

    def call(p: Any, q: Any, tokens: Any, seeds: Any) -> Any:
        options = {"logits": logits, "kernel": True, "seeds": seeds, "steps": seeds}
        return verify(p, q, tokens, rule, **options).token_ids

    tokens, seeds = torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
    torch._dynamo.reset()
    traced = torch.compile(call, fullgraph=True, backend=backend)
    try:
        traced(torch.rand(2, 3, 5000), torch.rand(2, 4, 5000), tokens, seeds)
    except TracedError as graph:
        return int(graph.args[0])
    raise RuntimeError("the call was not compiled")


def trace() -> None:
    """Rules with and without a search, one number or one per request, both forms of rows."""
    # Dynamo and `verify` would ask for a GPU first.
    torch.utils._triton.has_triton = lambda *_: True
    kernels.unavailable = lambda _: None
    each = torch.tensor([0.1, 0.5], dtype=torch.float64)
    for rule in (cr.Lossless(), cr.Cactus(each), cr.TopK(3), cr.Mentored(0.1), cr.Mentored(each)):
        for logits in (False, True):
            count = launches(rule, logits)
            print(f"one graph with {count} launches: {rule.name}, logits={logits}")


def main() -> None:
    """All programs, in all the forms that `launch` asks for."""
    done = [compiled(inputs.philox_uniforms, "fp32", 4, BLOCK=256)]
    for rows in ("fp32", "fp64", "fp16", "bf16"):
        done.append(compiled(inputs.partial_log_sum_exp, rows, 8, BLOCK=2048))
    for draft, floor, logits in itertools.product((False, True), repeat=3):
        form = {"HAS_DRAFT": draft, "HAS_FLOOR": floor, "LOGITS": logits, "BLOCK": 2048}
        done.append(compiled(programs.partial_sums, "fp32", 8, K_PAD=8, **form))
        done.append(compiled(programs.draw, "fp32", 8, BLOCKS_PAD=128, **form))
    for kind in (clip.TOTALS, clip.ONE, clip.PAIR):
        for rows, logits in itertools.product(("fp32", "fp64", "fp16", "bf16"), (False, True)):
            form = {"PASS": kind.value, "LOGITS": logits, "BLOCK": 2048}
            done.append(compiled(clip.sums, rows, 16, **form))
        for blocks in (1, 128):
            done.append(compiled(clip.step, "fp32", 1, PASS=kind.value, BLOCKS_PAD=blocks))
    print(f"{len(done)} programs for {TARGET.backend} {TARGET.arch}")
    trace()


if __name__ == "__main__":
    main()
