"""verl and TRL as subjects, and their batches as rollouts."""

import numpy as np
import pytest
import torch

from rlcheck.errors import RlcheckError
from rlcheck.interop import trl, verl
from rlcheck.properties import loss_response, response
from rlcheck.properties.corrections import REFERENCE, check_correction
from rlcheck.properties.losses import check_policy_loss


def broken(findings):
    return {finding.property.name for finding in findings if finding.broken}


def test_a_verl_batch_becomes_rollouts():
    batch = {
        "prompts": torch.tensor([[0, 11, 12], [13, 14, 15]]),
        "responses": torch.tensor([[1, 2, 3], [4, 0, 0]]),
        "attention_mask": torch.tensor([[0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]),
        "response_mask": torch.tensor([[1, 0, 1], [1, 0, 0]]),
        "rollout_log_probs": torch.tensor([[-1.0, -2.0, -3.0], [-4.0, 0.0, 0.0]], dtype=torch.bfloat16),
        "token_level_scores": torch.tensor([[0.0, 0.0, 1.0], [0.5, 0.0, 0.0]]),
    }
    rollouts = verl.rollouts(batch)
    assert rollouts.lengths.tolist() == [3, 1]
    assert rollouts.prompt_ids.tolist() == [11, 12, 13, 14, 15]
    assert rollouts.response_ids.tolist() == [1, 2, 3, 4]
    assert rollouts.mask.tolist() == [True, False, True, True]
    assert rollouts.engine_logprobs[rollouts.mask].tolist() == [-1.0, -3.0, -4.0]
    assert rollouts.reward.tolist() == [1.0, 0.5]
    assert rollouts.old_logprobs is None
    with pytest.raises(RlcheckError, match="no responses"):
        verl.rollouts({"prompts": batch["prompts"]})


def test_a_trl_batch_becomes_rollouts():
    batch = {
        "prompt_ids": torch.tensor([[0, 11], [12, 13]]),
        "prompt_mask": torch.tensor([[0, 1], [1, 1]]),
        "completion_ids": torch.tensor([[1, 2, 3], [4, 0, 0]]),
        "completion_mask": torch.tensor([[1, 1, 1], [1, 0, 0]]),
        "tool_mask": torch.tensor([[1, 0, 1], [1, 1, 1]]),
        "sampling_per_token_logps": torch.tensor([[-1.0, -2.0, -3.0], [-4.0, 0.0, 0.0]]),
        "old_per_token_logps": None,
        "advantages": torch.tensor([1.0, -1.0]),
    }
    rollouts = trl.rollouts(batch)
    assert rollouts.lengths.tolist() == [3, 1]
    assert rollouts.prompt_ids.tolist() == [11, 12, 13]
    assert rollouts.mask.tolist() == [True, False, True, True]
    assert rollouts.advantages.tolist() == [1.0, 1.0, 1.0, -1.0]
    with pytest.raises(RlcheckError, match="no prompt_mask"):
        trl.rollouts({"prompt_ids": batch["prompt_ids"]})


class TestVerl:
    @pytest.fixture(autouse=True)
    def _installed(self):
        pytest.importorskip("verl", reason=verl.MISSING)

    @pytest.mark.parametrize("name", verl.PRESETS)
    def test_presets_equal_their_formulas(self, name):
        findings = check_correction(verl.preset(name), examples=30)
        assert {finding.property for finding in findings} >= {REFERENCE}
        assert broken(findings) <= {"raised", "raised_when_empty", "moved_by_nonfinite", "moved_by_dtype"}
        if name != "decoupled_token_icepop":
            assert response.off_reference_on_grid(verl.preset(name), verl.PRESETS[name])[0] < 1e-9

    def test_uneven_bounds_act_on_mu_over_pi(self):
        """Bounds .6 and 1.4 keep rho in [1/1.4, 1/.6]: 1.5 stays and .65 goes."""
        low, high = response.respond(verl.uneven_rejection()).band
        assert (low, high) == pytest.approx((1 / 1.4, 1 / 0.6), rel=0.05)
        weights = response.respond(verl.uneven_rejection(), np.array([0.65, 1.0, 1.5])).weights
        assert weights.tolist() == [0, 1, 1]

    def test_icepop_divides_by_zero_when_every_token_is_out_of_bounds(self):
        one = torch.tensor([[-10.0]])
        with pytest.raises(ZeroDivisionError):
            verl.preset("decoupled_token_icepop")(old_logprobs=one, engine_logprobs=one + 9, mask=torch.ones(1, 1))

    def test_the_default_loss(self):
        loss = verl.policy_loss()
        assert not broken(check_policy_loss(loss, examples=30))
        assert loss_response.repartition_gap(loss, (2, 8)) < 1e-9
        assert loss_response.exponents(loss).policy == pytest.approx(1)


class TestTrl:
    @pytest.fixture(autouse=True)
    def _installed(self):
        pytest.importorskip("trl", reason=trl.MISSING)

    @pytest.mark.parametrize("name", trl.MODES)
    def test_modes_equal_their_formulas(self, name):
        """Token modes leave weight 1 outside the mask, which TRL's loss then masks."""
        allowed = {"outside_mask"} if name.startswith("token") else set()
        assert broken(check_correction(trl.mode(name), examples=30)) <= allowed
        assert response.off_reference_on_grid(trl.mode(name), trl.MODES[name])[0] < 1e-9

    def test_the_default_loss(self):
        loss = trl.policy_loss()
        assert broken(check_policy_loss(loss, examples=30)) == {"moved_by_garbage", "moved_by_nonfinite"}
        assert loss_response.repartition_gap(loss, (2, 8)) < 1e-9

    def test_cispo_caps_the_ratio_at_epsilon_not_above_one(self):
        """With the default epsilon .2 every weight is .2; the option is the cap itself."""
        assert loss_response.coefficient(trl.policy_loss("cispo"), -1.0, -1.0, -1.0, 1.0) == pytest.approx(0.2)
        capped = trl.policy_loss("cispo", epsilon_high=5.0)
        assert loss_response.coefficient(capped, -1.0, -1.0, -1.0, 1.0) == pytest.approx(1.0)
