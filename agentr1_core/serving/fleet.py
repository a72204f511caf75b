"""Several servers of one model, and which of them a session goes to.

A session's turns go where its prefix is cached, as long as that server is up; new sessions go to the server with the
least in flight. Engine plugins ask it for a server and tell it what they learn about one. It sends nothing itself.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from agentr1_core.errors import EngineError
from agentr1_core.serving.client import ServerClient

#: Sessions whose server is remembered; the oldest is forgotten first.
REMEMBERED = 65_536


@dataclass(slots=True, eq=False)
class Member:
    """One server and what is known about it."""

    client: ServerClient
    up: bool = False
    running: int = 0
    #: Why it is down.
    cause: str = "not started"


class Fleet:
    """The servers of one engine."""

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self._homes: OrderedDict[str, Member] = OrderedDict()
        self._changed = asyncio.Event()
        self._dead: EngineError | None = None

    @property
    def up(self) -> list[Member]:
        """The servers that can be asked now."""
        return [member for member in self.members if member.up]

    def mark_up(self, member: Member) -> None:
        """It answers, with the current weights."""
        member.up, member.cause = True, ""
        self._changed.set()

    def mark_down(self, member: Member, cause: str) -> None:
        """It does not answer, or has other weights than the current ones."""
        member.up, member.cause = False, cause

    def give_up(self, error: EngineError) -> None:
        """No server will come back: whoever waits for one gets ``error``."""
        self._dead = error
        self._changed.set()

    def choose(self, session: str | None) -> Member:
        """The server for a session.

        Raises:
            EngineError: None is up.
        """
        if not self.up:
            causes = "; ".join(f"{member.client.url}: {member.cause}" for member in self.members)
            raise self._dead or EngineError(f"No server is up. {causes}")
        home = self._homes.get(session) if session is not None else None
        if home is None or not home.up:
            home = min(self.up, key=lambda member: member.running)
        if session is not None:
            self._homes[session] = home
            self._homes.move_to_end(session)
            if len(self._homes) > REMEMBERED:
                self._homes.popitem(last=False)
        return home

    async def wait_up(self, timeout_s: float) -> None:
        """Wait until a server is up.

        Raises:
            EngineError: None comes back, or not in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not self.up and self._dead is None:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        if not self.up:
            self.choose(None)  # raises, with the causes
