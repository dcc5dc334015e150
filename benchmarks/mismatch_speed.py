"""How fast all mismatch metrics are, against verl's thirteen.

Times `rlcheck.mismatch.compare` (every metric) and verl's `compute_rollout_corr_metrics_from_logprobs`
(13 metrics) on the same tokens in one process and one thread, turn about, and prints the median ratio of
their CPU times. verl works on padded (B, T) tensors, so rows of ragged and of full length are both shown;
tokens per second count response tokens only. Each line ends with the largest relative difference between the
two on the metrics they share, which is that of verl's float32 sums.

Needs verl (tried with 0.9.1), which rlcheck itself never imports. From the root of the repository:

    PYTHONPATH=. python benchmarks/mismatch_speed.py [--rows 2048] [--length 512] [--repeats 9]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_corr_metrics_from_logprobs  # noqa: E402

from rlcheck.mismatch import UNITS, compare  # noqa: E402

SHARED = {
    "kl": "k1",
    "k3_kl": "k3",
    "training_ppl": "training_ppl",
    "training_log_ppl": "training_log_ppl",
    "rollout_ppl": "engine_ppl",
    "rollout_log_ppl": "engine_log_ppl",
    "log_ppl_diff": "log_ppl_diff",
    "log_ppl_abs_diff": "log_ppl_abs_diff",
    "log_ppl_diff_max": "max_log_ppl_diff",
    "log_ppl_diff_min": "min_log_ppl_diff",
    "ppl_ratio": "ppl_ratio",
    "chi2_token": "chi2_token",
    "chi2_seq": "chi2_sequence",
}


def batch(rows: int, length: int, ragged: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Engine and trainer log-probs (B, T) float32 with bfloat16-like noise, and the response mask (B, T)."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, length + 1, rows) if ragged else np.full(rows, length)
    engine = -rng.exponential(1.0, (rows, length)).astype(np.float32)
    old = engine + rng.normal(0.0, 0.03, (rows, length)).astype(np.float32)
    return engine, old, np.arange(length) < lengths[:, None]


def alternate(repeats: int, *functions: Callable[[], object]) -> np.ndarray:
    """CPU seconds (repeats, functions), called turn about: a busy machine slows them alike."""
    seconds = np.empty((repeats, len(functions)))
    for repeat, column in np.ndindex(seconds.shape):
        start = time.process_time()
        functions[column]()
        seconds[repeat, column] = time.process_time() - start
    return seconds


def report(rows: int, length: int, repeats: int, ragged: bool) -> None:
    """Print the speeds, their ratio and the agreement."""
    engine, old, mask = batch(rows, length, ragged)
    flat, offsets = (engine[mask], old[mask]), np.append(0, np.cumsum(mask.sum(1)))
    tensors = (torch.from_numpy(old), torch.from_numpy(engine), torch.from_numpy(mask))
    ours, theirs = compare(*flat, offsets), compute_rollout_corr_metrics_from_logprobs(*tensors)
    seconds = alternate(
        repeats, lambda: compare(*flat, offsets), lambda: compute_rollout_corr_metrics_from_logprobs(*tensors)
    )
    speeds = mask.sum() / np.median(seconds, axis=0) / 1e6
    ratio = np.median(seconds[:, 1] / seconds[:, 0])
    gaps = {name: abs(theirs[f"rollout_corr/{name}"] / getattr(ours, mine) - 1) for name, mine in SHARED.items()}
    worst = max(gaps, key=lambda name: gaps[name])
    print(
        f"{'ragged' if ragged else 'full'} rows, {mask.sum():,} of {mask.size:,} tokens: "
        f"rlcheck {len(UNITS)} metrics {speeds[0]:.1f} M tokens/s, "
        f"verl {len(theirs)} metrics {speeds[1]:.1f} M tokens/s, ratio {ratio:.2f}; "
        f"largest difference {gaps[worst]:.1e} ({worst})"
    )


def main() -> None:
    """Parse the options and report both layouts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for ragged in (True, False):
        report(options.rows, options.length, options.repeats, ragged)


if __name__ == "__main__":
    main()
