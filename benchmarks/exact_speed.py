"""How much faster the exact bias and variance are than 4,000 Monte Carlo repetitions of the same estimate.

    python benchmarks/exact_speed.py [--sweep]

``--sweep`` also compares every correction and baseline with 200,000 repetitions (a minute): all z-scores must
lie within 4.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch

from rlcheck import corrections, exact

BASELINES = ("leave_one_out", "batch_mean", "known", "none")
WIDE = {  # bounds that do not reject every one-token outcome
    "geometric_rejection": {"lower": 0.7, "upper": 1.4},
    "seq_mask_tis": {"lower": 0.7, "upper": 1.4, "cap": 1.2},
    "k3_rejection": {"upper": 0.1},
}


def seconds(call: Callable[[], object], repeats: int) -> float:
    """Fastest of several calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def speed() -> None:
    """One softmax step of 100 tokens, 64 samples, TIS."""
    problem, tis = exact.softmax_problem(0, sigma=1.0), corrections.from_name("tis")
    formula = seconds(lambda: exact.exact_moments(tis, problem), 200)
    sampled = seconds(lambda: exact.sampled_estimate(tis, problem, repetitions=4000), 5)
    print(
        f"exact {formula * 1e6:.0f} us, 4,000 repetitions {sampled * 1e3:.1f} ms: {sampled / formula:.0f} times faster"
    )


def sweep(repetitions: int = 200_000) -> None:
    """z-scores of bias^2 and variance, exact against Monte Carlo."""
    worst = 0.0
    for name in corrections.FAMILY:
        correction = corrections.from_name(name, **WIDE.get(name, {}))
        if getattr(correction, "normalise", False):
            continue  # looks across the batch: has no exact value
        for steps in (1, 2):
            problem = exact.softmax_problem(5, sigma=0.7, vocab=6 if steps == 1 else 3, steps=steps)
            for baseline in BASELINES:
                found = exact.estimate(correction, problem, n=8, baseline=baseline)
                sampled = exact.sampled_estimate(correction, problem, n=8, baseline=baseline, repetitions=repetitions)
                z = max(
                    abs(sampled.bias2 - found.bias2) / sampled.bias2_error,
                    abs(sampled.variance - found.variance) / sampled.variance_error,
                )
                worst = max(worst, z)
                print(f"{name:<20} {steps} step {baseline:<14} z {z:.1f}", flush=True)
    print(f"largest z {worst:.1f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    speed()
    if "--sweep" in sys.argv:
        sweep()
