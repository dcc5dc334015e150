"""TRL's GRPO as a subject: its importance-sampling modes, its loss and its batches.

In a ``conftest.py``, one import switches it on:

    from rlcheck.interop.trl import rlcheck_correction, rlcheck_expected_failures, rlcheck_policy_loss

TRL computes the weights in the middle of a long method of ``GRPOTrainer``; that block is cut out of the
installed source and run as it stands, so what is measured is TRL's own code. Read against TRL 1.16; what the
checks find in it is expected to fail, each with its reason.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import textwrap
from collections import defaultdict
from collections.abc import Mapping
from types import CodeType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rlcheck import corrections
from rlcheck.blackbox import declare
from rlcheck.corrections import RuleCorrection
from rlcheck.errors import RlcheckError
from rlcheck.interop.findings import expected_failures
from rlcheck.interop.padded import cut
from rlcheck.protocols import Correction, PolicyLoss
from rlcheck.rollouts import Rollouts, SamplingParams

MISSING = "trl is not installed: pip install 'rlcheck[trl]'"
RATIO = "vllm_importance_sampling_ratio"

GLOBAL = {"dapo", "cispo", "vespo"}  # the losses that divide by a global count of tokens

MODES: dict[str, RuleCorrection] = {
    "token_truncate": corrections.from_name("tis", cap=3.0),
    "token_mask": corrections.from_name("mis", lower=0.0, upper=3.0),
    "sequence_truncate": corrections.from_name("sequence_tis", cap=3.0),
    "sequence_mask": corrections.from_name("sequence_mis", upper=3.0),
}
"""TRL's ``vllm_importance_sampling_mode`` at its default cap of 3, each with its formula."""


OUTSIDE = "weights outside the mask stay 1 (its loss masks them afterwards)"
FINDINGS = {
    "check_correction_properties[token_truncate]": OUTSIDE,
    "check_correction_properties[token_mask]": OUTSIDE,
    "check_policy_loss": "log-probs of 1e4, inf or NaN in padding make the loss NaN (times the mask, after exp)",
}
rlcheck_expected_failures = expected_failures("trl", "1.16.0", FINDINGS)


def correction(mode: str = "sequence_mask", clip_max: float | None = 3.0, clip_min: float | None = None) -> Correction:
    """The importance-sampling ratio that ``GRPOTrainer`` computes in a mode, as a ``Correction``."""
    block = _ratio_block()
    trainer = SimpleNamespace(
        use_vllm=True,
        vllm_importance_sampling_correction=True,
        vllm_importance_sampling_mode=mode,
        vllm_importance_sampling_clip_max=clip_max,
        vllm_importance_sampling_clip_min=clip_min,
    )

    def trl_correction(*, old_logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor) -> Tensor:
        scope: dict[str, Any] = {
            **{"self": trainer, "torch": torch, "math": math, "tool_mask": None, "completion_mask": mask},
            **{"old_per_token_logps": old_logprobs, "sampling_per_token_logps": engine_logprobs},
        }
        with torch.no_grad():  # as around the block in its method
            exec(block, scope)
        ratio: Tensor = scope[RATIO]
        return ratio

    return trl_correction


def mode(name: str) -> Correction:
    """One of ``MODES``, declared to equal its formula."""
    return declare(correction(name), like=MODES[name])


def policy_loss(loss_type: str = "dapo", **settings: Any) -> PolicyLoss:
    """``GRPOTrainer``'s loss as a ``PolicyLoss``; ``settings`` are fields of ``GRPOConfig``."""
    from trl import GRPOConfig, GRPOTrainer

    defaults = {field.name: field.default for field in dataclasses.fields(GRPOConfig)}
    args = SimpleNamespace(**{**defaults, "steps_per_generation": 1, "loss_type": loss_type, **settings})

    def trl_loss(
        *,
        logprobs: Tensor,
        old_logprobs: Tensor,
        engine_logprobs: Tensor,
        advantages: Tensor,
        mask: Tensor,
        weights: Tensor | None = None,
        denominator: Tensor | None = None,
    ) -> Tensor:
        ids = torch.zeros(mask.shape, dtype=torch.int64)
        inputs = {
            **{"prompt_ids": ids[:, :1], "prompt_mask": ids[:, :1] + 1, "completion_ids": ids, "completion_mask": mask},
            **{"old_per_token_logps": old_logprobs, "sampling_per_token_logps": engine_logprobs},
            **{"advantages": advantages, "importance_sampling_ratio": weights},
            "num_items_in_batch": mask.sum() if denominator is None else torch.as_tensor(denominator),
        }
        trainer = _bare_trainer(GRPOTrainer, args, logprobs, use_vllm=weights is not None)
        value: Tensor = trainer._compute_loss(trainer.model, inputs)
        return value

    def local_loss(*, weights: Tensor | None = None, **inputs: Tensor) -> Tensor:
        return trl_loss(weights=weights, **inputs)

    return trl_loss if loss_type in GLOBAL else local_loss


@pytest.fixture(params=MODES)
def rlcheck_correction(request: pytest.FixtureRequest) -> Correction:
    """TRL's four importance-sampling modes."""
    pytest.importorskip("trl", reason=MISSING)
    return mode(request.param)


@pytest.fixture(scope="session")
def rlcheck_policy_loss() -> PolicyLoss:
    """TRL's default loss (DAPO: token mean over the global batch)."""
    pytest.importorskip("trl", reason=MISSING)
    return policy_loss()


def rollouts(batch: Mapping[str, Any], params: SamplingParams | None = None) -> Rollouts:
    """The rows of the dictionary that ``GRPOTrainer`` hands to its loss.

    Reads ``prompt_ids`` and ``prompt_mask`` (left-padded), ``completion_ids``, ``completion_mask``, and where
    present ``tool_mask``, ``sampling_per_token_logps``, ``old_per_token_logps`` and ``advantages`` (B,) or
    (B, T). Raises ``RlcheckError`` naming a tensor that is missing.
    """
    for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask"):
        if batch.get(name) is None:
            raise RlcheckError(f"the TRL batch holds no {name}: pass the inputs of GRPOTrainer's loss")
    real = batch["completion_mask"].bool()

    def tokens(name: str) -> list[Any] | None:
        values = batch.get(name)
        if values is None:
            return None
        return cut(values if values.dim() == 2 else values[:, None].expand(real.shape), real)

    return Rollouts.from_lists(
        prompt_ids=cut(batch["prompt_ids"], batch["prompt_mask"].bool()),
        response_ids=cut(batch["completion_ids"], real),
        params=params,
        engine_logprobs=tokens("sampling_per_token_logps"),
        old_logprobs=tokens("old_per_token_logps"),
        mask=None if batch.get("tool_mask") is None else cut(batch["tool_mask"].bool(), real),
        advantages=tokens("advantages"),
    )


def _ratio_block() -> CodeType:
    """The statement of the installed ``GRPOTrainer`` that computes the ratio, compiled."""
    from trl import GRPOTrainer

    source = textwrap.dedent(inspect.getsource(GRPOTrainer._generate_and_score_completions))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.If) and RATIO in _assigned(node):
            return compile(ast.Module(body=[node], type_ignores=[]), "trl.GRPOTrainer", "exec")
    raise RlcheckError(f"this TRL computes no {RATIO} where 1.16 does: install trl 1.16, or adapt rlcheck.interop.trl")


def _assigned(statement: ast.If) -> set[str]:
    names = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def _bare_trainer(kind: Any, args: SimpleNamespace, logprobs: Tensor, *, use_vllm: bool) -> Any:
    """A ``GRPOTrainer`` with what its loss reads and nothing else; its model answers with ``logprobs``."""
    trainer = kind.__new__(kind)
    trainer.__dict__.update(vars(args))
    high = args.epsilon if args.epsilon_high is None else args.epsilon_high
    trainer.__dict__.update(args=args, epsilon_low=args.epsilon, epsilon_high=high, use_vllm=use_vllm)
    trainer.__dict__.update(model=SimpleNamespace(training=True), current_gradient_accumulation_steps=1)
    trainer.__dict__.update(aux_loss_enabled=False, _entropy_bonus_enabled=False)
    trainer._metrics = {"train": defaultdict(list)}
    trainer.accelerator = SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x)
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (logprobs, torch.zeros_like(logprobs), None)
    return trainer
