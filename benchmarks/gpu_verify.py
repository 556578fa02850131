"""Verification on a GPU: correctness first, then timings against other shapes of the same code.

    python benchmarks/gpu_verify.py                        # under six minutes on a GPU
    python benchmarks/gpu_verify.py --small --device cpu   # a rehearsal; the kernels interpreted

Prints Markdown. Bytes per second count what a method must touch: one row pair per request from
probabilities; from logits also each row once, for its log-sum-exp; for Mentored also every row pair
of the draft once, though its search reads them several times. They stand beside a copy kernel
measured in the same run.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator

import torch
from verify_peers import all_residuals, batch, full_vocabulary

import cactus_rules as cr

SHAPES = [(1, 5, 128256), (16, 5, 32000), (32, 8, 128256), (64, 8, 151936), (256, 5, 128256)]
SMALL = [(1, 2, 3000), (3, 2, 500)]
RULES = (cr.Lossless(), cr.Cactus(0.5), cr.Typical(), cr.TopK(5), cr.Mentored(0.1))

Call = Callable[[], object]


def correctness(device: str, shape: tuple[int, int, int]) -> list[str]:
    """Kernels against plain torch on the device, and plain torch against the numpy core."""
    from cactus_rules.adapters.torch import softmax, verify

    p, q, tokens = batch(shape, device)
    b, k, v = shape
    tokens[-1, k // 2 :] = -1
    q[0, -1, :3] = float("nan")
    if b > 2:
        p[1, 0, 7], tokens[2, 0] = float("nan"), v
    names = {"seeds": torch.arange(b, device=device) - 1}
    names["steps"] = names["seeds"] * 3 + 5
    failures = []
    for rule in RULES:
        for logits in (False, True):
            rows = (p, q) if logits else (softmax(p), softmax(q))
            plain = verify(*rows, tokens, rule, logits=logits, kernel=False, **names)
            fused = verify(*rows, tokens, rule, logits=logits, kernel=True, **names)
            host = cr.verify(
                *(softmax(x).cpu().numpy() for x in (p, q)),
                tokens.cpu().numpy(),
                rule,
                seeds=names["seeds"].cpu().numpy(),
                steps=names["steps"].cpu().numpy(),
                policy="safe",
            )
            what = f"{rule.name}, {'logits' if logits else 'probabilities'}, {shape}"
            if not all(
                torch.equal(getattr(plain, f), getattr(fused, f)) for f in ("token_ids", "status")
            ):
                failures.append(f"kernels differ from plain torch: {what}")
            if not logits and (plain.token_ids.cpu().numpy() != host.token_ids).any():
                failures.append(f"plain torch differs from numpy: {what}")
    return failures


def passes(shape: tuple[int, int, int], device: str) -> str:
    """How often the search of Mentored reads the rows of a batch."""
    from cactus_rules.adapters import kernels
    from cactus_rules.adapters.kernels import clip, launch

    p, q, _ = batch(shape, device)
    rows = [kernels.ProbabilityRows(torch.softmax(x, -1)) for x in (p, q)]
    delta = torch.full((), 0.1, dtype=torch.float64, device=device)
    found = launch.search(rows[0], rows[1].first(shape[1]), delta)[..., clip.PASSES.value]
    return f"Mentored(0.1) reads a row pair {found.median():.0f} times, at most {found.max():.0f}"


def timed(call: Call, device: str, budget: float) -> float:
    """Median microseconds of a call, within about `budget` seconds."""
    call()
    if device == "cpu":
        rounds = []
        while len(rounds) < 3 or (sum(rounds) < budget and len(rounds) < 20):
            start = time.perf_counter()
            call()
            rounds.append(time.perf_counter() - start)
        return 1e6 * statistics.median(rounds)
    flush = torch.empty(2**28, dtype=torch.int8, device=device)
    rounds, start = [], time.perf_counter()
    while len(rounds) < 5 or (time.perf_counter() - start < budget and len(rounds) < 200):
        flush.zero_()  # so that the rows come from memory, not from the cache
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        rounds.append(begin.elapsed_time(end))
    return 1e3 * statistics.median(rounds)


def graphed(call: Call) -> Call:
    """The call as a CUDA graph, replayed."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def methods(
    shape: tuple[int, int, int], device: str, compiled: bool
) -> Iterator[tuple[str, Callable[[], Call], int]]:
    """Name, maker of the call, and bytes that must be touched."""
    from cactus_rules.adapters.torch import verify

    p_logits, q_logits, tokens = batch(shape, device)
    p, q = torch.softmax(p_logits, -1), torch.softmax(q_logits, -1)
    b, k, v = shape
    seeds = torch.arange(b, device=device)
    pair, every = 2 * b * v * 4, b * (2 * k + 1) * v * 4

    def ours(rule: cr.Rule, logits: bool, kernel: bool) -> Call:
        rows = (p_logits, q_logits) if logits else (p, q)
        options = {"logits": logits, "kernel": kernel, "seeds": seeds, "steps": seeds}
        return lambda: verify(*rows, tokens, rule, **options)

    source = torch.empty(2 * b * v, device=device)
    sink = torch.empty_like(source)
    yield "copy of as many bytes as the row pairs", lambda: lambda: sink.copy_(source), 2 * pair
    for logits in (False, True):
        form, read_once = ("logits", every + pair) if logits else ("probabilities", pair)
        for rule in (cr.Lossless(), cr.Cactus(0.5), cr.Mentored(0.1)):
            searched = rule.reads == "rows"
            touched = read_once + (2 * b * k * v * 4 if searched else 0)
            plain, fused = (ours(rule, logits, kernel) for kernel in (False, True))
            # Plain torch sorts float64 copies of all rows.
            if not searched or b * k <= 256:
                yield f"plain torch, {rule.name}, {form}", lambda call=plain: call, touched
            yield f"kernels, {rule.name}, {form}", lambda call=fused: call, touched
            if device == "cuda":
                name = f"kernels in a CUDA graph, {rule.name}, {form}"
                yield name, lambda call=fused: graphed(call), touched
        if compiled:
            name = f"kernels, compiled, in a CUDA graph, cactus, {form}"
            call = ours(cr.Cactus(0.5), logits, True)
            yield name, lambda call=call: graphed(torch.compile(call, fullgraph=True)), read_once
    yield "full-vocabulary Cactus", lambda: lambda: full_vocabulary(p, q, tokens), every
    yield "residual at every position", lambda: lambda: all_residuals(p, q, tokens), every
    if importlib.util.find_spec("flashinfer") is not None:
        yield "FlashInfer chain_speculative_sampling", lambda: _flashinfer(p, q, tokens), pair


def _flashinfer(p: torch.Tensor, q: torch.Tensor, tokens: torch.Tensor) -> Call:
    from flashinfer.sampling import chain_speculative_sampling

    ids = tokens.int()
    return lambda: chain_speculative_sampling(p, ids, q)


def report(shape: tuple[int, int, int], device: str, compiled: bool, budget: float) -> None:
    print(f"\nB={shape[0]}, K={shape[1]}, V={shape[2]}\n\n| method | µs | GB/s touched | of copy |")
    print("|---|---|---|---|", flush=True)
    copy = None
    for name, make, touched in methods(shape, device, compiled):
        try:
            micros = timed(make(), device, budget)
        except Exception as error:  # a method that fails must not hide the others
            reason = (str(error).splitlines() or [""])[0][:90]
            print(f"| {name}: failed, {type(error).__name__}: {reason} | - | - | - |", flush=True)
            continue
        rate = touched / micros / 1e3
        copy = copy or rate
        print(f"| {name} | {micros:.1f} | {rate:.1f} | {rate / copy:.2f} |", flush=True)
    print(f"\n{passes(shape, device)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--small", action="store_true", help="tiny shapes, as a rehearsal")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which to stop")
    args = parser.parse_args()
    if args.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="triton")
        torch.set_num_threads(1)
        if not args.small:
            parser.error("--device cpu runs the kernels in an interpreter: add --small")
    elif not torch.cuda.is_available():
        parser.error("no GPU: use --small --device cpu for a rehearsal")
    start = time.perf_counter()
    name = torch.cuda.get_device_name() if args.device == "cuda" else "CPU, kernels interpreted"
    print(f"{name}; torch {torch.__version__}, CUDA {torch.version.cuda}")
    shapes = SMALL if args.small else SHAPES
    for shape in shapes if args.small else [(3, 3, 5000), *SHAPES[:2]]:
        failures = correctness(args.device, shape)
        print(
            "\n".join(failures) or f"correct at {shape}: kernels = plain torch = numpy", flush=True
        )
    for shape in shapes:
        elapsed = time.perf_counter() - start
        if elapsed > args.limit:
            print(f"\n{shape} left out: {elapsed:.0f} s used")
            continue
        compiled = args.device == "cuda" and elapsed < args.limit / 2
        report(shape, args.device, compiled, budget=0.05 if args.small else 0.5)
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
