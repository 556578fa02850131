"""Acceptance rules on torch tensors: batched verification from probabilities or logits.

    from cactus_rules.adapters.torch import verify, warp

`verify` decides a whole batch of drafts without reading a value back to the host, so that it runs
under ``torch.compile(fullgraph=True)`` and inside a CUDA graph; where Triton and a GPU are at hand
the rows are read by `cactus_rules.adapters.kernels`. `warp` applies sampling filters to logits,
with one set of parameters per request.
"""

from cactus_rules.adapters.torch.logits import LogitRows, log_sum_exp, softmax
from cactus_rules.adapters.torch.verification import verify
from cactus_rules.adapters.torch.warping import warp

__all__ = ["LogitRows", "log_sum_exp", "softmax", "verify", "warp"]
