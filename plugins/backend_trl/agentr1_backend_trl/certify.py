"""What ``agentr1 certify`` measures on TRL: tokens, log-probs and gradients of a few real episodes.

The backend calls ``certify`` with a trainer that is ready to train. Every layout gets the same tokens and the same
random credit, so that gradients differ only if a layout is wrong. It changes weights once, at the very end, to see
whether the engine follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from agentr1_backend_trl.exact_gradient import double_copy, layout_gradient
from agentr1_backend_trl.faults import damage_chunk, damage_tree, retokenise
from agentr1_backend_trl.replay import Layout, apart, noise_credit, part_of, replay, share_of_rank
from agentr1_backend_trl.startup import check_settings
from agentr1_backend_trl.step_batch import ScoredBatch, play_batch
from agentr1_backend_trl.tree_chunk import TreeSettings
from agentr1_backend_trl.tree_forward import causal_lm
from agentr1_backend_trl.tree_models import can_use_cache, check_tree_model, noise_in
from agentr1_core.certificate import Certificate, Check
from agentr1_core.credit import Credit
from agentr1_core.errors import ConfigError, EnvError
from agentr1_core.mdp import Group
from agentr1_core.rows import make_rows

#: Relative difference of two gradients: in float32 (random credit nearly cancels, which leaves rounding a larger
#: share), in float64, and in half precision.
FP32, FP64, HALF = 1e-5, 1e-12, 2e-2
#: Largest difference of a log-prob in nats between engine and trainer that are one model in float32, and the largest
#: mean one between two programmes or in half precision.
SAME_MODEL, OTHER_ENGINE = 1e-3, 5e-2
#: After new weights, how far the engine may be behind, as a share of how far they moved the log-probs.
BEHIND = 0.05


def certify(trainer: Any, n_tasks: int, *, n_groups: int, fault: str | None) -> Certificate:
    """Play, measure, and say what held.

    Args:
        trainer: A ``StepGRPOTrainer`` of a job, on one process.
        n_tasks: Rows of its data.
        n_groups: Groups to play.
        fault: What to damage on purpose; see ``agentr1_core.backend.FAULTS``.

    Raises:
        EnvError: No episode can be trained on.
    """
    with trainer.session():
        said = _record(trainer.player.engine)
        scored = _play(trainer, n_tasks, n_groups, "certify")
        groups = list(scored.collection.groups)
        if fault == "retokenise":
            groups = retokenise(groups)
        credit = noise_credit(groups)
        checks = [*_token_checks(groups, credit, said, scored), *_gap_checks(trainer, groups, credit)]
        checks += _gradient_checks(trainer, groups, credit, fault)
        checks += _sync_checks(trainer, n_tasks, n_groups, groups, credit, stale=fault == "stale")
    return Certificate(tuple(checks), _about(trainer, scored))


def _play(trainer: Any, n_tasks: int, n_groups: int, stream: str) -> ScoredBatch:
    inputs = [{"task": number % n_tasks} for number in range(n_groups) for _ in range(trainer.num_generations)]
    scored = play_batch(trainer, inputs, stream, training=True)
    if not scored.ledger.sampled or not scored.collection.trajectories:
        raise EnvError("No episode that could be trained on was played.", "See `agentr1 rollout` for one of them.")
    return scored


def _record(engine: Any) -> Counter[tuple[bytes, bytes]]:
    """Every prompt and answer of the engine from now on, as it said them."""
    said: Counter[tuple[bytes, bytes]] = Counter()
    generate = engine.generate

    async def recording(prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        found = await generate(prompt_ids, *args, **kwargs)
        said[_key(prompt_ids, found.token_ids)] += 1
        return found

    engine.generate = recording
    return said


def _key(prompt: Any, answer: Any) -> tuple[bytes, bytes]:
    return np.asarray(prompt, dtype=np.int64).tobytes(), np.asarray(answer, dtype=np.int64).tobytes()


def _token_checks(
    groups: Sequence[Group], credit: Credit, said: Counter[tuple[bytes, bytes]], scored: ScoredBatch
) -> Iterator[Check]:
    trained = exact = 0
    for row in make_rows(groups, credit).rows:  # one row a step
        n = row.n_trained
        trained += n
        exact += n if said[_key(row.prompt_ids, row.completion_ids)] else 0
    share = 100.0 * exact / trained if trained else float("nan")
    yield Check("trained tokens that the engine sampled, under that very prompt (%)", share, 100.0, exact=True)
    yield Check("tokens that changed between two turns", float(_retokenised(groups)), 0.0, exact=True)
    ledgers = [make_rows(groups, credit, merge=merge).ledger for merge in ("none", "linear", "tree")]
    off = sum(not ledger.balances for ledger in (*ledgers, scored.ledger))
    off += len({tuple(ledger.as_dict().items()) for ledger in ledgers}) - 1
    yield Check("token ledgers that do not balance", float(off), 0.0, exact=True)


def _retokenised(groups: Sequence[Group]) -> int:
    """Tokens of earlier turns that a continuing prompt does not repeat as they were."""
    n = 0
    for trajectory in (t for group in groups for t in group.trajectories):
        for before, after in zip(trajectory.steps, trajectory.steps[1:], strict=False):
            if after.continued:
                told = np.concatenate([before.prompt_ids, before.action.token_ids])
                again = after.prompt_ids[: len(told)]
                n += len(told) - len(again) + int(np.sum(told[: len(again)] != again))
    return n


def _gap_checks(trainer: Any, groups: Sequence[Group], credit: Credit) -> Iterator[Check]:
    gaps = np.abs(replay(trainer, groups, credit, Layout()).gaps)
    strict = _one_model(trainer) and _in_float32(trainer)
    yield Check("log-prob gap of engine and trainer, largest (nats)", float(gaps.max()), SAME_MODEL if strict else None)
    yield Check("log-prob gap of engine and trainer, mean (nats)", float(gaps.mean()), OTHER_ENGINE)


def _gradient_checks(trainer: Any, groups: list[Group], credit: Credit, fault: str | None) -> Iterator[Check]:
    model = trainer.accelerator.unwrap_model(trainer.model)
    limit = FP32 if _in_float32(trainer) else HALF
    kind = "float32" if _in_float32(trainer) else "half"
    noise = noise_in(model)
    if noise is not None:
        yield Check("gradients", None, note=noise)
        return
    separate = replay(trainer, groups, credit, Layout()).gradient
    why_not = {"linear": _refusal(lambda: check_settings(trainer.args, "linear"))}
    why_not["mask"] = _refusal(lambda: check_tree_model(model, aux_loss=trainer.aux_loss_enabled))
    why_not["kv"] = why_not["mask"] or (None if can_use_cache(causal_lm(model)) else "it cannot run over a cache")
    double = double_copy(model)
    exact = layout_gradient(double, groups, credit, "none")
    for name, told, layout in (
        ("linear", "merged rows", Layout("linear")),
        ("mask", "token tree, one mask", Layout("tree", TreeSettings(2**30, "mask"))),
        ("kv", "token tree, over a cache", Layout("tree", TreeSettings(2**30, "kv"))),
    ):
        if why_not[name] is not None:
            yield Check(f"gradient, {told}", None, note=str(why_not[name]))
            continue
        found = replay(trainer, groups, credit, layout, damage_chunk(fault)).gradient
        yield Check(f"gradient, {told}: off separate rows, {kind}", apart(found, separate), limit)
        found = layout_gradient(double, groups, credit, name, damage_tree(fault))
        yield Check(f"gradient, {told}: off separate rows, float64", apart(found, exact), FP64)
    found = replay(trainer, groups, credit, Layout(rows_per_forward=3, n_parts=2)).gradient
    yield Check(f"gradient, other micro-batches, {kind}", apart(found, separate), limit)
    members = sum(len(group.trajectories) for group in groups)
    if members > 1:
        ranks = []
        for rank in range(2):
            part, own = part_of(groups, credit, lambda number, rank=rank: number % 2 == rank)
            factor = share_of_rank(trainer, groups, credit, part, own)
            ranks.append(factor * replay(trainer, part, own, Layout()).gradient)
        yield Check(f"gradient, split over two ranks, {kind}", apart(ranks[0] + ranks[1], separate), limit)


def _sync_checks(
    trainer: Any, n_tasks: int, n_groups: int, groups: Sequence[Group], credit: Credit, *, stale: bool
) -> Iterator[Check]:
    """Move the weights, tell the engine, and see whether it samples from the new ones and forgot its old cache."""
    before = replay(trainer, groups, credit, Layout()).gaps
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in trainer.model.parameters():
            if p.requires_grad:
                size = 0.05 * max(float(p.detach().float().abs().mean()), 1e-3)
                p.add_(size * torch.randn(p.shape, generator=generator).to(p))
    if not stale:
        trainer.state.global_step += 1  # a new version, which the next play brings to the engine
    moved = np.abs(replay(trainer, groups, credit, Layout()).gaps - before).mean()
    again = list(_play(trainer, n_tasks, n_groups, "certify-sync").collection.groups)
    behind = np.abs(replay(trainer, again, noise_credit(again), Layout()).gaps).mean()
    limit = BEHIND if _in_float32(trainer) and _one_model(trainer) else 0.5
    yield Check("after new weights: engine behind, as a share of their effect", float(behind / moved), limit)


def _refusal(check: Callable[[], None]) -> str | None:
    try:
        check()
    except ConfigError as error:
        return error.problem
    return None


def _one_model(trainer: Any) -> bool:
    return "live" in trainer.player.engine.capabilities.weight_sync


def _in_float32(trainer: Any) -> bool:
    whole = next(trainer.model.parameters()).dtype == torch.float32
    return whole and not trainer.args.bf16 and not trainer.args.fp16


def _about(trainer: Any, scored: ScoredBatch) -> dict[str, Any]:
    steps = [len(t.steps) for t in scored.collection.trajectories]
    return {
        "model": type(causal_lm(trainer.accelerator.unwrap_model(trainer.model))).__name__,
        "engine": type(trainer.player.engine).__name__,
        "episodes": len(steps),
        "steps": sum(steps),
        "sampled tokens": scored.ledger.sampled,
        **{name: version(name) for name in ("torch", "transformers", "trl")},
    }
