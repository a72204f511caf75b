"""Turn a GGUF file into a folder that every trainer and engine loads: safetensors, config and tokenizer.

    pip install gguf
    python examples/gguf_to_folder.py SmolLM2-135M-Instruct.Q4_1.gguf smollm2

The weights are unpacked to float32: what the quantisation lost stays lost.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", type=Path, help="the .gguf file")
    parser.add_argument("folder", type=Path, help="where to write the model")
    options = parser.parse_args()
    if not options.gguf.is_file():
        parser.error(f"there is no file {options.gguf}")
    source, name = str(options.gguf.parent), options.gguf.name
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(options.folder)
    AutoTokenizer.from_pretrained(source, gguf_file=name).save_pretrained(options.folder)
    print(f"{options.folder}: {model.num_parameters() / 1e6:.0f}M parameters")


if __name__ == "__main__":
    main()
