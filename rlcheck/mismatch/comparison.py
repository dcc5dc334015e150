"""All metrics of `Mismatch` from one pass over the tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from rlcheck.mismatch.metrics import Mismatch
from rlcheck.mismatch.ragged import Array, Floats, Integers, Selection, chunks, select

TOKEN_LIMIT = 300.0  # nats: the square of e^300 still fits in fp64, and no real ratio comes near
SEQUENCE_LIMIT = 20.0  # nats: the clamp that the field's sequence ratios get
CHUNK = 1 << 15  # tokens: a handful of fp64 arrays of this length stay in cache
BOUNDS = {"below_0_9": 0.9, "above_1_1": 1.1, "below_0_5": 0.5, "above_2": 2.0, "above_5": 5.0}

Means = Mapping[str, float]
RowSums = Mapping[str, Array]


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def compare(
    engine_logprobs: npt.ArrayLike,
    old_logprobs: npt.ArrayLike,
    offsets: npt.ArrayLike,
    mask: npt.ArrayLike | None = None,
    *,
    chunk: int = CHUNK,
) -> Mismatch:
    """Every metric of the mismatch between the engine's log-probs and the trainer's.

    ``engine_logprobs`` and ``old_logprobs``: (N,) float32 or float64, nats; ``offsets``: (B+1,) row
    boundaries; ``mask``: (N,) bool or 0/1; ``chunk``: tokens worked on at a time, for speed only. A token
    outside the mask takes no part; one that is NaN or infinite on either side is counted (``missing_share``,
    ``support_share``) and takes no further part. Raises `RlcheckError` where lengths or types do not fit.
    """
    selection = select(engine_logprobs, old_logprobs, offsets, mask)
    n, trained, outside = len(selection.old_logprobs), selection.trained, selection.outside_support
    values: dict[str, Any] = {field.name: np.nan for field in fields(Mismatch)}
    values |= {"n": n, "rows": len(selection.offsets) - 1, "clamped_rows": 0}
    if trained:
        values |= {"missing_share": (trained - n - outside) / trained, "support_share": outside / trained}
    if n:
        d, sums, mean = reduce_tokens(selection, chunk)
        values |= divergences(mean) | probability_metrics(mean, sums) | ratio_metrics(mean, d)
        values |= row_metrics(sums, np.diff(selection.offsets)) | sequence_ratio_metrics(sums["d"])
        values |= log_ratio_metrics(mean, d)
    return Mismatch(**values)


def reduce_tokens(selection: Selection, chunk: int) -> tuple[Array, RowSums, Means]:
    """One pass over the tokens: d (n,), what each row adds up to (rows,), and token means."""
    engine, old, offsets = selection.engine_logprobs, selection.old_logprobs, selection.offsets
    d = np.empty(len(engine))
    by_row: dict[str, list[Array]] = defaultdict(list)
    totals: dict[str, float] = defaultdict(float)
    for rows in chunks(offsets, chunk):
        tokens, starts = slice(offsets[rows.start], offsets[rows.stop]), offsets[rows] - offsets[rows.start]
        np.subtract(old[tokens], engine[tokens], out=d[tokens], dtype=np.float64)
        chunk_rows, chunk_totals = reduce_chunk(engine[tokens], old[tokens], d[tokens], starts)
        for name, sums in chunk_rows.items():
            by_row[name].append(sums)
        for name, total in chunk_totals.items():
            totals[name] += float(total) / len(d)
    return d, {name: np.concatenate(parts) for name, parts in by_row.items()}, totals


def reduce_chunk(engine: Floats, old: Floats, d: Array, starts: Integers) -> tuple[dict[str, Array], dict[str, float]]:
    """What the rows that begin at ``starts``, and the tokens of all of them, add up to, in fp64.

    Everything is built on expm1(|d|): small differences keep their digits, large ones do not cancel.
    Probabilities are exponentiated in the precision of the log-probs, which already limits them.
    """
    d_abs = np.abs(d)
    excess = np.expm1(np.minimum(d_abs, TOKEN_LIMIT))  # e^|d| − 1
    shortfall = excess / (1 + excess)  # 1 − e^−|d|
    ratio_error = (d > 0) * (excess + shortfall) - shortfall  # ρ − 1; np.where stumbles over random signs
    both_errors = excess - shortfall  # ρ + 1/ρ − 2 = 4 sinh²(d/2)
    mu, pi_old = np.exp(engine).astype(np.float64), np.exp(old).astype(np.float64)
    prob_diff = np.maximum(mu, pi_old) * shortfall  # |π_old − μ|
    rows = {
        "engine": np.add.reduceat(engine.astype(np.float64), starts),
        "d": np.add.reduceat(d, starts),
        "d_abs": np.add.reduceat(d_abs, starts),
        "excess": np.add.reduceat(excess, starts),
        "max_prob_diff": np.maximum.reduceat(prob_diff, starts),
    }
    totals = {
        "d": rows["d"].sum(),
        "d_abs": rows["d_abs"].sum(),
        "d_square": d @ d,
        "ratio_error": ratio_error.sum(),
        "ratio_error_abs": np.abs(ratio_error).sum(),
        "ratio_error_square": ratio_error @ ratio_error,
        "both_errors": both_errors.sum(),
        "excess": rows["excess"].sum(),
        "log_cosh": sum_log1p(both_errors / 4) / 2,  # cosh² = 1 + sinh²
        "mu": mu.sum(),
        "pi_old": pi_old.sum(),
        "mu_square": mu @ mu,
        "pi_old_square": pi_old @ pi_old,
        "mu_pi_old": mu @ pi_old,
        "mu_d": mu @ d,
        "prob_diff": prob_diff.sum(),
        "prob_diff_square": prob_diff @ prob_diff,
    }
    return rows, totals


def sum_log1p(values: Array) -> float:
    """Σ log(1 + x), x in [0, e^300]; pairs are multiplied first: a logarithm costs ten products."""
    half = len(values) // 2
    a, b = values[:half], values[half : 2 * half]
    return float(np.log1p(a + b + a * b).sum() + np.log1p(values[2 * half :]).sum())


def log_ratio_metrics(mean: Means, d: Array) -> dict[str, float]:
    """The distribution of d over tokens; reorders ``d``."""
    absolute = np.abs(d, out=d)
    return {
        "mean": mean["d"],
        "mean_abs": mean["d_abs"],
        "std": deviation(mean["d"], mean["d_square"]),
        "std_abs": deviation(mean["d_abs"], mean["d_square"]),
        "max_abs": float(absolute.max()),
        **dict(zip(("median_abs", "p99_abs"), quantiles(absolute, 0.5, 0.99), strict=True)),
    }


def divergences(mean: Means) -> dict[str, float]:
    """Estimators on sampled tokens: k1, k2 and k3 after Schulman, "Approximating KL Divergence"."""
    return {
        "k1": -mean["d"],
        "k2": mean["d_square"] / 2,
        "k3": mean["ratio_error"] - mean["d"],
        "k3_reversed": mean["both_errors"] - mean["ratio_error"] + mean["d"],
        "jsd": mean["log_cosh"],
        "weighted_reverse_kl": -mean["mu_d"],
        "token_mult_prob_error": 1 + mean["excess"],
    }


def probability_metrics(mean: Means, sums: RowSums) -> dict[str, float]:
    """|π_old − μ| and the correlation of the two."""
    return {
        "mean_prob_diff": mean["prob_diff"],
        "max_prob_diff": float(sums["max_prob_diff"].max()),
        "std_prob_diff": deviation(mean["prob_diff"], mean["prob_diff_square"]),
        "prob_pearson": pearson(mean),
    }


def pearson(mean: Means) -> float:
    """Correlation of μ and π_old over tokens; NaN where either varies by no more than rounding."""
    scale = deviation(mean["mu"], mean["mu_square"]) * deviation(mean["pi_old"], mean["pi_old_square"])
    if scale <= 1e-12 * mean["mu_pi_old"]:
        return np.nan
    return (mean["mu_pi_old"] - mean["mu"] * mean["pi_old"]) / scale


def ratio_metrics(mean: Means, d: Array) -> dict[str, float]:
    """The token ratio ρ: moments, extremes, effective sample size and the shares beyond each bound."""
    error, square = mean["ratio_error"], mean["ratio_error_square"]
    smallest, largest = np.exp(np.clip([d.min(), d.max()], -TOKEN_LIMIT, TOKEN_LIMIT))
    return {
        "mean_ratio": 1 + error,
        "std_ratio": deviation(error, square),
        "min_ratio": float(smallest),
        "max_ratio": float(largest),
        "mean_ratio_deviation": mean["ratio_error_abs"],
        "chi2_token": 2 * error + square,
        "ess_fraction_token": (1 + error) ** 2 / (1 + 2 * error + square),
        **shares(d, "share"),
    }


def sequence_ratio_metrics(log_ratios: Array) -> dict[str, float]:
    """The sequence ratio exp(Σd) of each row (rows,), with Σd clamped."""
    clamped = np.clip(log_ratios, -SEQUENCE_LIMIT, SEQUENCE_LIMIT)
    ratio, error = np.exp(clamped), np.expm1(clamped)
    return {
        "clamped_rows": int(np.count_nonzero(clamped != log_ratios)),
        **spread(ratio, "sequence_ratio"),
        "chi2_sequence": float(np.mean(error * (2 + error))),
        "ess_fraction_sequence": float(np.mean(ratio) ** 2 / np.mean(ratio * ratio)),
        **shares(log_ratios, "sequence_share"),
    }


def row_metrics(sums: RowSums, lengths: Integers) -> dict[str, float]:
    """Means over rows of what is a mean over each row's tokens."""
    engine, d = sums["engine"] / lengths, sums["d"] / lengths
    return {
        "sequence_mean_abs": float(np.mean(sums["d_abs"] / lengths)),
        **spread(1 + sums["excess"] / lengths, "sequence_mult_prob_error"),
        **spread(np.exp(d), "geometric_ratio"),
        "training_ppl": float(np.mean(np.exp(-engine - d))),
        "engine_ppl": float(np.mean(np.exp(-engine))),
        "training_log_ppl": float(np.mean(-engine - d)),
        "engine_log_ppl": float(np.mean(-engine)),
        "log_ppl_diff": float(np.mean(-d)),
        "log_ppl_abs_diff": float(np.mean(np.abs(d))),
        "max_log_ppl_diff": float(np.max(-d)),
        "min_log_ppl_diff": float(np.min(-d)),
        "ppl_ratio": float(np.mean(np.exp(-d))),
    }


def spread(by_row: Array, name: str) -> dict[str, float]:
    """Mean, smallest and largest row."""
    return {
        f"mean_{name}": float(by_row.mean()),
        f"min_{name}": float(by_row.min()),
        f"max_{name}": float(by_row.max()),
    }


def shares(log_ratios: Array, prefix: str) -> dict[str, float]:
    """The share of ratios beyond each of `BOUNDS`; a ratio equal to a bound is inside."""
    values = {}
    for name, bound in BOUNDS.items():
        beyond = log_ratios < np.log(bound) if bound < 1 else log_ratios > np.log(bound)
        values[f"{prefix}_{name}"] = int(np.count_nonzero(beyond)) / len(log_ratios)
    return values


def deviation(mean: float, mean_square: float) -> float:
    """The standard deviation (over n) from the first two moments."""
    return float(np.sqrt(max(mean_square - mean * mean, 0.0)))


def quantiles(values: Array, *ascending: float) -> Iterator[float]:
    """NumPy's linear quantiles, in place: a partition of what is left is several times faster."""
    start = 0
    for q in ascending:
        below, fraction = divmod(q * (len(values) - 1), 1)
        rank = int(below)
        values[start:].partition(rank - start)
        above = values[rank + 1 :].min() if fraction else values[rank]
        yield float(values[rank] + fraction * (above - values[rank]))
        start = rank
