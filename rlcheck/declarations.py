"""What a stack claims about itself, so that a convention is judged only where it was declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcheck.errors import RlcheckError, closest

NAMES: dict[str, str] = {
    "bitwise": "log-probs are bit-equal across batch sizes, layouts and both sides",
    "moe": "the model is a mixture of experts",
    "routing_replay": "the trainer replays the engine's expert routing",
    "quantised": "the engine samples from quantised weights or activations",
    "dtype": "dtype of both sides, where rollouts are recorded and no engine can be asked",
    "unfiltered": "recorded rollouts hold every sampled row, none was filtered by reward or length",
    "missing_logprobs": "largest share of trained tokens that may lack an engine log-prob",
    "sampling": "the sampling parameters that the stack varies, such as ('temperature', 'top_p'): only they are tried",
    "kv_across_sync": "the KV cache is kept across an in-flight weight update",
    "batch_reuse": "how often one batch is trained on",
    "aggregation": "what a loss averages over: token or sequence",
    "denominator_over": "which tokens the denominator counts: kept or all",
    "advantage_family": "the advantage estimator",
    "truncation_policy": "what happens to truncated episodes: keep, mask (out of the loss) or drop",
    "timeout_seconds": "after how many seconds of work an episode is stopped",
    "max_staleness": "the staleness, in versions, up to which a step accepts an episode",
    "oversample": "how many batches of episodes are started for one that is trained",
    "seeded": "the same seed draws the same tokens",
    "stop_strings": "responses may stop at a string instead of an EOS or stop id",
    "clock_slack": "seconds by which the clocks of an episode log may differ (1 where undeclared)",
}
"""Every declaration, and what it claims."""


def validate(declared: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``declared``; raises ``RlcheckError`` on a name that nothing reads."""
    for name in declared:
        if name not in NAMES:
            raise RlcheckError(f"rlcheck_declarations: unknown name {name!r}: {closest(name, NAMES)}")
    return declared
