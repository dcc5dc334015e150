"""The built-in prompts."""

from __future__ import annotations

from typing import Any

import numpy as np

TEXTS = (
    "The tallest mountain in Europe is",
    "def is_prime(n):\n    ",
    "Long ago, in a village by the sea,",
    "Question: what is 17 * 6?\nAnswer:",
    "Newton's first law says that",
    "Dear hiring manager,\n\nI am writing to",
    "import torch\nimport torch.nn as",
    "In the summer of 1914,",
    "To make a good cup of coffee, first",
    "English: thank you very much\nFrench:",
    "The function of the liver is to",
    "My least favourite season is",
    "Four animals that live in the desert: camel,",
    "SELECT COUNT(*) FROM",
    "Shares of the company rose after",
    "The speed of light is",
    "He looked up at the sky and",
    "<!DOCTYPE html>\n<html>",
    "Evaporation happens when",
    "2, 4, 8, 16, 32,",
    "An even number is one that",
    "If you want to run a marathon, you should",
    "while not done:\n    ",
    "The committee concluded that",
    "She asked him whether",
    "Rust is a programming language",
    "The quick brown fox",
    "What makes us human is",
    "Solve for y: 2y + 3 = 11, so y =",
    "Last winter we travelled to",
)


def text_prompts(tokenizer: Any) -> list[list[int]]:
    """Encode the built-in texts, with the special tokens that the tokenizer adds."""
    return [list(tokenizer(text)["input_ids"]) for text in TEXTS]


def random_prompts(vocabulary: int) -> list[list[int]]:
    """Return as many prompts of 3 to 14 random ids, the same every time; the first ids are left to specials."""
    generator = np.random.default_rng(0)
    lowest = min(3, vocabulary - 1)
    lengths = generator.integers(3, 15, len(TEXTS))
    return [generator.integers(lowest, vocabulary, length).tolist() for length in lengths]
