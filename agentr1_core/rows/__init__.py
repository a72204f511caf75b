"""Training rows: which sampled tokens train, in which sequences, with which weight, and where the others went."""

from __future__ import annotations

from agentr1_core.rows.layout import make_rows
from agentr1_core.rows.ledger import Ledger
from agentr1_core.rows.row import CONTEXT, RowBatch, TrainingRow
from agentr1_core.rows.sequences import ScoringSequence, lay_out_sequences
from agentr1_core.rows.tree import TokenTree, TreeCost, build_tree, count_unique, plan_trees
from agentr1_core.rows.weights import Totals, WeightMode, token_weights

__all__ = [
    "CONTEXT",
    "Ledger",
    "RowBatch",
    "ScoringSequence",
    "TokenTree",
    "Totals",
    "TrainingRow",
    "TreeCost",
    "WeightMode",
    "build_tree",
    "count_unique",
    "lay_out_sequences",
    "make_rows",
    "plan_trees",
    "token_weights",
]
