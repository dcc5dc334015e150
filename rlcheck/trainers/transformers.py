"""A trainer's log-prob recompute on transformers: one padded full forward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rlcheck import lm
from rlcheck.errors import RlcheckError
from rlcheck.rollouts import Rollouts

SPREAD_OF_ZEROS = 0.1
"""Standard deviation that ``perturb`` ascribes to a parameter of zeros, about that of an adapter in training."""


class TransformersTrainer:
    """Recomputes log-probs of given tokens at the parameters of their rollouts.

    Only response positions go through the LM head, a bounded number at a time, so that memory does not grow
    with vocabulary times length. ``eval_mode=False`` leaves the model in the mode it is in.
    """

    def __init__(
        self, model: Any, *, fp32_head: bool = False, name: str = "", version: int | None = None, eval_mode: bool = True
    ) -> None:
        self.model = model
        self.version = version
        self._lm = lm.CausalLM(model, fp32_head=fp32_head)
        self._name = name
        self._eval_mode = eval_mode
        self._before_perturb: dict[str, torch.Tensor] = {}

    @property
    def info(self) -> Mapping[str, str]:
        """Model, dtype, attention, device and vocabulary size."""
        return lm.describe(self._lm, self._name)

    def logprobs(
        self, rollouts: Rollouts, *, batch_size: int | None = None, layout: lm.Layout = "right"
    ) -> list[npt.NDArray[np.float32]]:
        """Log-prob of every response token, one (T_i,) array a row; -inf outside a truncated support."""
        return lm.logprobs(self._lm, rollouts, rollouts.params, **self._how(batch_size, layout))

    def training_logprobs(
        self, rollouts: Rollouts, *, batch_size: int | None = None, layout: lm.Layout = "right"
    ) -> list[npt.NDArray[np.float32]]:
        """The same with autograd recording, as in the forward of a loss."""
        return lm.logprobs(self._lm, rollouts, rollouts.params, gradients=True, **self._how(batch_size, layout))

    def gradient(self, rollouts: Rollouts, partition: Sequence[Sequence[int]]) -> dict[str, npt.NDArray[np.float32]]:
        """Gradient of the policy loss −ΣA·log π/Σmask over trained tokens, by parameter; ``.grad`` stays as it is.

        ``partition`` lists the rows of each micro-batch; the denominator is that of all rows. A is
        ``rollouts.advantages``, 1 where there are none.
        """
        parameters = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        total = {name: np.zeros(tuple(p.shape), np.float32) for name, p in parameters.items()}
        for rows in partition:
            part = rollouts.select(list(rows))
            if not part.mask.any():
                continue
            loss = self._policy_loss(part) / max(int(rollouts.mask.sum()), 1)
            grads = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
            for name, grad in zip(parameters, grads, strict=True):
                total[name] += 0 if grad is None else grad.float().cpu().numpy()
        return total

    def _policy_loss(self, rollouts: Rollouts) -> torch.Tensor:
        how = {**self._how(len(rollouts), "right"), "gradients": True}
        advantages = np.ones(rollouts.n_tokens) if rollouts.advantages is None else rollouts.advantages
        weights = torch.from_numpy(np.where(rollouts.mask, advantages, 0).astype(np.float32)).to(self._lm.device)
        terms = []
        for block in lm.scored(self._lm, rollouts, rollouts.params, **how):
            chosen = block.logprobs.gather(-1, block.targets[:, None])[:, 0]
            weight = weights[block.tokens]
            terms.append(-(weight * torch.where(weight != 0, chosen, 0)).sum())
        return torch.stack(terms).sum()

    def token_stats(self, rollouts: Rollouts, *, batch_size: int | None = None) -> dict[str, list[npt.NDArray[Any]]]:
        """``entropy`` (nats), ``argmax`` and ``rank`` (0 = most likely) of every response token."""
        return lm.token_stats(self._lm, rollouts, **self._how(batch_size, "right"))

    def distribution(self, rollouts: Rollouts, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Log-probs (n, V) at ``positions`` (n, 2) of row and token, at ``rollouts.params``."""
        return lm.distribution(self._lm, rollouts, positions, **self._how(None, "right"))

    @torch.no_grad()
    def perturb(self, scale: float, seed: int) -> None:
        """Move every trained parameter by ``scale`` times its own standard deviation, at random.

        A constant one moves by ``scale`` times its value, one of zeros (a bias, a fresh adapter) by ``scale``
        times ``SPREAD_OF_ZEROS``. From equal weights and seed it gives equal weights.
        """
        if not self._before_perturb:
            self._before_perturb = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        generator = torch.Generator().manual_seed(seed)
        for parameter in trained_parameters(self.model):
            noise = torch.randn(parameter.shape, generator=generator).to(parameter)
            parameter.add_(scale * spread(parameter) * noise)
        self.version = (self.version or 0) + 1

    @torch.no_grad()
    def restore(self) -> None:
        """Take back the weights from before the first ``perturb``; raises ``RlcheckError`` without one."""
        if not self._before_perturb:
            raise RlcheckError("restore() without perturb(): there are no weights to go back to")
        for name, parameter in self.model.named_parameters():
            parameter.copy_(self._before_perturb[name])
        self._before_perturb = {}
        self.version = (self.version or 0) + 1

    def fingerprint(self) -> dict[str, str]:
        """sha256 of every tensor that ``weights`` would push, by name."""
        return lm.fingerprint(self.model)

    def weights(self) -> dict[str, torch.Tensor]:
        """What an engine must hold to sample this policy: every tensor by name, adapters merged."""
        return lm.merged_state(self.model)

    def base_logprobs(self, rollouts: Rollouts) -> list[npt.NDArray[np.float32]] | None:
        """Log-probs of the base model, without its low-rank adapters; None where it has none."""
        if not lm.adapted_layers(self.model):
            return None
        with lm.adapters_off(self.model):
            return self.logprobs(rollouts)

    def _how(self, batch_size: int | None, layout: lm.Layout) -> dict[str, Any]:
        return {"batch_size": batch_size, "layout": layout, "eval_mode": self._eval_mode}


def trained_parameters(model: Any) -> list[torch.nn.Parameter]:
    """Return the floating-point parameters that an optimiser would move; all of them where all are frozen."""
    parameters = [parameter for parameter in model.parameters() if parameter.is_floating_point()]
    return [parameter for parameter in parameters if parameter.requires_grad] or parameters


def spread(parameter: torch.Tensor) -> float:
    """Return a parameter's standard deviation; that of a constant is its absolute value."""
    values = parameter.float()
    return float(values.std(correction=0)) or float(values.abs().mean()) or SPREAD_OF_ZEROS
