"""What sharing saves: separate rows, merged rows and token trees, in one run and inside the real trainer.

For each shape of episode: unique tokens against tokens of separate rows, processor time of forward and backward
through ``StepGRPOTrainer``'s own loss, of a whole ``trainer.train()`` update, peak memory, and how far the gradients
are apart. Separate rows run one by one, so that no padding flatters the comparison. Random weights, fp32, one thread;
processor time, because wall time on a shared machine says little. Prints one JSON object as its last line.

    make bench-tree

Names of shapes as arguments measure those alone; a path that ends in .svg gets a plot.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig

from agentr1_backend_trl.replay import Layout, apart, chunks_of, noise_credit, replay
from agentr1_backend_trl.trainer import StepGRPOTrainer
from agentr1_backend_trl.tree_chunk import TreeSettings
from agentr1_backend_trl.tree_cost import cheaper_path, cost_of
from agentr1_core.env import AgentEnv
from agentr1_core.mdp import Action, Group, Observation, Step, StopReason, Trajectory, float_array, token_array
from agentr1_core.rows import build_tree

HIDDEN, LAYERS, VOCAB = 512, 6, 4096
REPEATS = int(os.environ.get("REPEATS", "1"))
KEYS = ("token_ratio", "time_ratio", "update_ratio", "memory_ratio", "grad_rel_diff")


class Shapes:
    """Episodes of random tokens."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def tokens(self, n):
        return self.rng.integers(3, VOCAB, n)

    def chain(self, turns, prompt=0, ctx=None):
        """Each turn appends 64 tokens that are read and 64 that are sampled."""
        ctx = self.tokens(prompt) if ctx is None else ctx
        for _ in range(turns):
            ctx, action = np.concatenate([ctx, self.tokens(64)]), self.tokens(64)
            yield ctx, action
            ctx = np.concatenate([ctx, action])

    def stripped(self, turns, prompt=256):
        """64 tokens of thinking and 32 of answer are sampled; the next turn sees the answer alone."""
        ctx = self.tokens(prompt)
        for _ in range(turns):
            ctx, thought, answer = np.concatenate([ctx, self.tokens(64)]), self.tokens(64), self.tokens(32)
            yield ctx, np.concatenate([thought, answer])
            ctx = np.concatenate([ctx, answer])

    def window(self, turns, prompt=256, width=2):
        """The prompt is a system message and the last two turns."""
        system, past = self.tokens(prompt), []
        for _ in range(turns):
            seen, action = self.tokens(64), self.tokens(64)
            yield np.concatenate([system, *past[-width:], seen]), action
            past.append(np.concatenate([seen, action]))

    def group(self, *rollouts):
        trajectories = [
            Trajectory(
                f"g/{member}",
                "g",
                {},
                tuple(
                    Step(
                        index,
                        Observation(messages=(), prompt_ids=token_array(prompt)),
                        Action(token_array(action), float_array(np.full(len(action), -np.log(VOCAB)))),
                        reward=0.0,
                    )
                    for index, (prompt, action) in enumerate(steps)
                ),
                StopReason.TERMINATED,
            )
            for member, steps in enumerate(rollouts)
        ]
        return Group("g", {}, tuple(trajectories), ())


def shapes():
    """The groups that are measured, by name."""
    for turns in (4, 8, 16):
        shape = Shapes(turns)
        yield f"chain_{turns}", shape.group(shape.chain(turns))
    shape = Shapes(1)
    prompt = shape.tokens(256)
    yield "tree_4x4", shape.group(*(shape.chain(4, ctx=prompt) for _ in range(4)))
    shape = Shapes(2)
    yield "think_strip_8", shape.group(shape.stripped(8))
    shape = Shapes(3)
    yield "window_8", shape.group(shape.window(8))


class Silent(AgentEnv):
    """Never played: the episodes are given."""

    async def reset(self, task):
        raise RuntimeError("the benchmark's episodes are given, not played")

    async def step(self, action):
        raise RuntimeError("the benchmark's episodes are given, not played")


class GivenEpisodes(StepGRPOTrainer):
    """The trainer with episodes in place of rollouts; all else of an update is its own."""

    def give(self, groups, credit, layout):
        self.given = groups, credit, layout

    def _generate_and_score_completions(self, inputs):
        return chunks_of(self, *self.given)


def build_trainer(folder, layout):
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=int(HIDDEN * 2.75),
        num_hidden_layers=LAYERS,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        eos_token_id=2,
        pad_token_id=0,
    )
    words = {"<pad>": 0, "<unk>": 1, "<eos>": 2}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, "<unk>")), eos_token="<eos>", pad_token="<pad>"
    )
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    return GivenEpisodes(
        Qwen2ForCausalLM(config),
        args=GRPOConfig(
            str(folder),
            per_device_train_batch_size=2,
            gradient_accumulation_steps=1,
            num_generations=2,
            max_steps=1,
            learning_rate=0.0,  # every layout is timed on the same weights
            loss_type="dapo",
            bf16=False,
            use_cpu=True,
            gradient_checkpointing=False,
            disable_tqdm=True,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=Dataset.from_dict({"n": [0, 1]}),
        processing_class=tokenizer,
        env=Silent,
        renderer="template",
        merge=layout.merge,
        tree=layout.tree,
    )


def timed(work, repeats=1):
    """Least processor seconds of some runs, what the last one gave, and its peak memory in MiB (on Linux)."""
    best, found, peak = float("inf"), None, None
    for _ in range(repeats):
        found = None
        before = _reset_peak()
        start = time.process_time()
        found = work()
        best = min(best, time.process_time() - start)
        peak = None if before is None else (_status("VmHWM") - before) / 1024
    return best, found, peak


def _reset_peak():
    """Start the process's memory high-water mark anew, and say where it is."""
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        return _status("VmHWM")
    except OSError:
        return None


def _status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


LAYOUTS = {
    "separate": Layout("none"),
    "mask": Layout("tree", TreeSettings(path="mask")),
    "kv": Layout("tree", TreeSettings(path="kv")),
    "tree": Layout("tree", TreeSettings()),
}


def measure(trainer, folder, group):
    credit = noise_credit([group])
    rows = [np.concatenate([s.prompt_ids, s.action.token_ids]) for t in group.trajectories for s in t.steps]
    tree = build_tree(rows)
    seconds, memory, gradients, updates = {}, {}, {}, {}
    for name, layout in LAYOUTS.items():
        if name == "tree":
            continue  # the automatic choice is one of the two
        repeats = REPEATS if name == "separate" else 2 * REPEATS
        work = partial(replay, trainer, [group], credit, layout)
        seconds[name], found, memory[name] = timed(work, repeats)
        gradients[name] = found.gradient
    for name in ("separate", "tree"):
        layout = LAYOUTS[name]
        real = build_trainer(folder, layout)
        real.give([group], credit, layout)
        updates[name], _, _ = timed(real.train)
    chosen = cheaper_path(tree, cost_of(HIDDEN, "cpu"))
    found = {
        "token_ratio": tree.n_row_tokens / len(tree),
        "time_ratio": seconds["separate"] / seconds[chosen],
        "update_ratio": updates["separate"] / updates["tree"],
        "memory_ratio": memory["separate"] / memory[chosen] if memory[chosen] else None,
        "grad_rel_diff": apart(gradients[chosen], gradients["separate"]),
    }
    more = {
        "chosen": chosen,
        "tokens": [tree.n_row_tokens, len(tree)],
        "forwards": len(tree.segment_starts()),
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "update_seconds": {name: round(value, 2) for name, value in updates.items()},
        "memory_mib": {name: value and round(value) for name, value in memory.items()},
        "time_ratio_mask": round(seconds["separate"] / seconds["mask"], 2),
        "time_ratio_kv": round(seconds["separate"] / seconds["kv"], 2),
        "grad_rel_diff_other": apart(gradients["kv" if chosen == "mask" else "mask"], gradients["separate"]),
    }
    return found, more


def plot(results, path):
    """Bars of what is saved, for docs/tree.md."""
    import pygal

    chart = pygal.Bar(
        title="Separate rows / token tree",
        y_title="times less",
        width=900,
        height=420,
        print_values=True,
        value_formatter=lambda value: f"{value:.1f}",
        js=[],
        disable_xml_declaration=True,
    )
    chart.x_labels = list(results)
    for key, told in (("token_ratio", "tokens"), ("time_ratio", "forward and backward"), ("update_ratio", "update")):
        chart.add(told, [found[key] for found in results.values()])
    chart.render_to_file(path)


def main():
    torch.set_num_threads(1)
    only = [name for name in sys.argv[1:] if not name.endswith(".svg")]
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        trainer = build_trainer(folder, Layout("tree"))
        warm = Shapes(9)
        warm = warm.group(warm.chain(2))
        for layout in LAYOUTS.values():
            replay(trainer, [warm], noise_credit([warm]), layout)
        for name, group in shapes():
            if only and name not in only:
                continue
            found, more = measure(trainer, folder, group)
            results[name] = {key: float(f"{found[key]:.3g}") if found[key] is not None else None for key in KEYS}
            print(name, json.dumps({**results[name], **more}), flush=True)
    for path in sys.argv[1:]:
        if path.endswith(".svg"):
            plot(results, path)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
