"""Keys and values of finished calls, kept so that the next turn of an episode need not compute its context again.

The worker thread alone uses it. A prefix is reused only where its token ids are equal, and ``clear`` is called
whenever the weights change; nothing here can tell one version from another.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from agentr1_core.mdp import TokenArray
from agentr1_engine_transformers.slab import Block

#: Contexts of different episodes are compared only if they begin with these many equal tokens.
_HEAD = 16
#: Other episodes looked at for a shared beginning.
_MAX_CANDIDATES = 8


@dataclass(frozen=True, slots=True)
class CachedContext:
    """Token ids whose keys and values are cached, ``(n_tokens,)``, and those."""

    tokens: TokenArray
    block: Block


class PrefixStore:
    """The newest context of each session, the least recently used dropped beyond ``max_tokens``."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._n_tokens = 0
        self._contexts: OrderedDict[str, CachedContext] = OrderedDict()
        self._by_head: dict[bytes, OrderedDict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._contexts)

    @property
    def n_tokens(self) -> int:
        """Tokens cached now."""
        return self._n_tokens

    def clear(self) -> None:
        """Forget everything."""
        self._contexts.clear()
        self._by_head.clear()
        self._n_tokens = 0

    def put(self, session: str, tokens: TokenArray, block: Block) -> None:
        """Remember a context in place of the session's former one; ``block`` must be a copy of its own."""
        self._drop(session)
        if len(tokens) > self._max_tokens:
            return
        self._contexts[session] = CachedContext(tokens, block)
        self._by_head.setdefault(_head(tokens), OrderedDict())[session] = None
        self._n_tokens += len(tokens)
        while self._n_tokens > self._max_tokens:
            self._drop(next(iter(self._contexts)))

    def longest(self, session: str | None, tokens: TokenArray) -> tuple[int, Block] | None:
        """The longest cached beginning of ``tokens`` short of their last one, as its length and block."""
        names = list(self._by_head.get(_head(tokens), ()))[: -_MAX_CANDIDATES - 1 : -1] if len(tokens) > _HEAD else []
        if session is not None and session in self._contexts:
            names.insert(0, session)
        best, best_name = 0, None
        for name in names:
            n = _n_shared(self._contexts[name].tokens, tokens)
            if n > best:
                best, best_name = n, name
        best = min(best, len(tokens) - 1)
        if best_name is None or best == 0:
            return None
        self._contexts.move_to_end(best_name)
        return best, tuple(part[:, :, :best] for part in self._contexts[best_name].block)

    def _drop(self, session: str) -> None:
        context = self._contexts.pop(session, None)
        if context is None:
            return
        self._n_tokens -= len(context.tokens)
        head = _head(context.tokens)
        del self._by_head[head][session]
        if not self._by_head[head]:
            del self._by_head[head]


def _head(tokens: TokenArray) -> bytes:
    return tokens[:_HEAD].tobytes()


def _n_shared(a: TokenArray, b: TokenArray) -> int:
    """Length of the common beginning of two token arrays."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    return int(differs.argmax()) if differs.any() else n
