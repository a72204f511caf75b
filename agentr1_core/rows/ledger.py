"""The token ledger: every sampled token is trained, or masked or dropped for a reason, and the three add up.

``make_rows`` fills one for each batch; backends add them up over ranks and updates and report them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Ledger:
    """Counts of sampled tokens.

    *Masked* tokens are left out one by one, for what is true of the token (``stale``, ``truncated``, ``unscorable``,
    ``no_logprob``); *dropped* ones went with a whole step or trajectory (``too_long``, ``zero_advantage``, or the
    stop reason of an episode that failed).
    """

    sampled: int = 0
    trained: int = 0
    masked: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def balances(self) -> bool:
        """Whether trained, masked and dropped tokens add up to the sampled ones."""
        return self.trained + sum(self.masked.values()) + sum(self.dropped.values()) == self.sampled

    def __add__(self, other: Ledger) -> Ledger:
        """The ledger of both batches together."""
        return Ledger(
            sampled=self.sampled + other.sampled,
            trained=self.trained + other.trained,
            masked=dict(Counter(self.masked) + Counter(other.masked)),
            dropped=dict(Counter(self.dropped) + Counter(other.dropped)),
        )

    def as_dict(self) -> dict[str, int]:
        """Flat counts for a log: the four totals, then one entry such as ``masked/stale`` for each reason."""
        return {
            "sampled": self.sampled,
            "trained": self.trained,
            "masked": sum(self.masked.values()),
            "dropped": sum(self.dropped.values()),
            **{f"masked/{reason}": n for reason, n in sorted(self.masked.items())},
            **{f"dropped/{reason}": n for reason, n in sorted(self.dropped.items())},
        }
