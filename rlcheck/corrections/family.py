"""The corrections by name, each with its conventional defaults and who uses them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rlcheck import masked, registry
from rlcheck.corrections.rules import Level, Rule, RuleCorrection


def none() -> RuleCorrection:
    """Weight 1 on every trained token: the mismatch is ignored."""
    return RuleCorrection("none")


def importance_sampling() -> RuleCorrection:
    """rho of each token: unbiased for one-token outcomes, unbounded variance."""
    return RuleCorrection("is", (Rule(),))


def tis(cap: float = 2.0) -> RuleCorrection:
    """min(rho, cap) of each token: truncated importance sampling (cap 2 in verl, slime, SkyRL; 3 in TRL)."""
    return RuleCorrection("tis", (Rule(action="truncate", upper=cap),))


def cis(lower: float = 0.5, upper: float = 2.0) -> RuleCorrection:
    """clip(rho, lower, upper) of each token (slime's ``clip`` mode)."""
    return RuleCorrection("cis", (Rule(action="clip", lower=lower, upper=upper),))


def mis(lower: float = 0.5, upper: float = 5.0) -> RuleCorrection:
    """rho where it lies in [lower, upper], else 0: masked importance sampling, IcePop (verl, Ring)."""
    return RuleCorrection("mis", (Rule(action="mask", lower=lower, upper=upper),))


def sequence_is(clamp: float = masked.CLAMP) -> RuleCorrection:
    """The product of rho over the sequence, at every token of it: unbiased for whole responses."""
    return RuleCorrection("sequence_is", (Rule("sequence", clamp=clamp),))


def sequence_tis(cap: float = 2.0) -> RuleCorrection:
    """min(product of rho, cap) (cap 2 in verl, 5 in SkyRL, 3 in TRL)."""
    return RuleCorrection("sequence_tis", (Rule("sequence", "truncate", upper=cap),))


def sequence_mis(lower: float = 0.0, upper: float = 3.0) -> RuleCorrection:
    """The product of rho where it lies in the bounds, else 0 (TRL's default, ``sequence_mask``)."""
    return RuleCorrection("sequence_mis", (Rule("sequence", "mask", lower, upper),))


def geometric_is() -> RuleCorrection:
    """exp(mean of d over the sequence) as weight of each of its tokens (slime's ``geometric`` level)."""
    return RuleCorrection("geometric_is", (Rule("geometric"),))


def segment_is() -> RuleCorrection:
    """exp(mean of d over the turn) as weight of each token of the turn (ROLL); needs ``turn_ids``."""
    return RuleCorrection("segment_is", (Rule("segment"),))


def geometric_rejection(lower: float = 0.99, upper: float = 1.01) -> RuleCorrection:
    """Sequences whose geometric mean of rho lies outside the bounds are rejected (SkyRL's bounds)."""
    return RuleCorrection("geometric_rejection", (Rule("geometric", "reject", lower, upper),))


def k1_rejection(lower: float = 0.5, upper: float = 2.0, level: Level = "sequence") -> RuleCorrection:
    """Reject where exp(d), aggregated at the level, lies outside the bounds; they bound pi_old/mu."""
    return RuleCorrection("k1_rejection", (Rule(level, "reject", lower, upper),))


def k2_rejection(upper: float = 2.0, level: Level = "geometric") -> RuleCorrection:
    """Reject where d^2/2, aggregated at the level, exceeds ``upper`` nats."""
    return RuleCorrection("k2_rejection", (Rule(level, "reject", upper=upper, statistic="k2"),))


def k3_rejection(upper: float = 0.01, level: Level = "geometric") -> RuleCorrection:
    """Reject where rho - 1 - d, aggregated at the level, exceeds ``upper`` nats (verl's ``seq_mean_k3``)."""
    return RuleCorrection("k3_rejection", (Rule(level, "reject", upper=upper, statistic="k3"),))


def veto(lower: float = 1e-4) -> RuleCorrection:
    """Sequences with any token whose rho is below ``lower`` are rejected (slime)."""
    return RuleCorrection("veto", (Rule(action="veto", lower=lower),))


def self_normalised(cap: float = math.inf) -> RuleCorrection:
    """min(rho, cap) divided by its mean over the batch."""
    return RuleCorrection("self_normalised", (Rule(action="truncate", upper=cap),), normalise=True)


def seq_mask_tis(lower: float = 0.999, upper: float = 1.002, cap: float = math.inf) -> RuleCorrection:
    """Geometric rejection times min(rho, cap) of each token (NeMo-RL and OpenRLHF leave rho untruncated)."""
    rules = (Rule("geometric", "reject", lower, upper), Rule(action="truncate", upper=cap))
    return RuleCorrection("seq_mask_tis", rules)


FAMILY: dict[str, Callable[..., RuleCorrection]] = {
    "none": none,
    "is": importance_sampling,
    "tis": tis,
    "cis": cis,
    "mis": mis,
    "icepop": mis,
    "sequence_is": sequence_is,
    "sequence_tis": sequence_tis,
    "sequence_mis": sequence_mis,
    "geometric_is": geometric_is,
    "segment_is": segment_is,
    "geometric_rejection": geometric_rejection,
    "k1_rejection": k1_rejection,
    "k2_rejection": k2_rejection,
    "k3_rejection": k3_rejection,
    "veto": veto,
    "self_normalised": self_normalised,
    "seq_mask_tis": seq_mask_tis,
}


def from_name(name: str, **parameters: Any) -> RuleCorrection:
    """A correction of the family by name, such as ``from_name("tis", cap=2.0)``.

    Raises ``RlcheckError`` on an unknown name or parameter.
    """
    maker = registry.find("correction", FAMILY, name)
    registry.refuse_unknown(f"correction {name}", maker, parameters)
    return maker(**parameters)
