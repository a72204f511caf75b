"""Shopping as an environment: a page in, ``search[...]`` or ``click[...]`` out, one reward when something is bought."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from agentr1_core.env import AgentEnv, StepResult
from agentr1_core.errors import ConfigError, DataError
from agentr1_core.mdp import Action, Message, Observation
from agentr1_core.task import Task
from agentr1_core.threads import call_in_thread
from agentr1_recipes.webshop.goal import Goal
from agentr1_recipes.webshop.loader import open_shop
from agentr1_recipes.webshop.reward import score_purchase
from agentr1_recipes.webshop.shop import Page, Shop, parse_action

SYSTEM: Message = {
    "role": "system",
    "content": "You shop for what the instruction asks. Answer with one action, search[keywords] or click[something on "
    "the page], on a line of its own at the end. Choose the options that were asked for, then click[Buy Now].",
}


class WebShopEnv(AgentEnv):
    """WebShop (Yao et al. 2022, arXiv 2207.01206) without its server.

    ``task["goal"]`` is a goal of the recipe, ``task["catalogue"]`` the folder of its catalogue; the invented one where
    it is missing. Messages are appended: each page is a user message. The anchor names the page and what was chosen.

    Args:
        max_turns: Actions until the episode is truncated.
        show_actions: List what can be clicked below each page.
        show_attributes: Let the shopper see the page of attributes.
    """

    def __init__(self, max_turns: int = 15, show_actions: bool = True, show_attributes: bool = False) -> None:
        if max_turns < 1:
            raise ConfigError(f"`max_turns` of WebShop is {max_turns}.", "Give at least 1.")
        self.max_turns = max_turns
        self.show_actions = show_actions
        self.show_attributes = show_attributes
        self._counters: Counter[str] = Counter({"actions/valid": 0, "actions/invalid": 0})

    @property
    def counters(self) -> Mapping[str, float]:
        return self._counters

    async def reset(self, task: Task) -> Observation:
        self._goal = Goal.from_row(task["goal"], task.where)
        catalogue, asin = task.get("catalogue"), self._goal.asin
        self._shop: Shop = await call_in_thread(open_shop, catalogue, self.show_attributes)
        if asin not in self._shop.catalogue.by_asin:
            raise DataError(
                f"{task.where}: the goal's product {asin} is not in the catalogue.",
                "Name the catalogue it was made from.",
            )
        self._page = Page()
        self._turns = 0
        self._messages: tuple[Message, ...] = (SYSTEM, await call_in_thread(self._show))
        return self._observe()

    async def step(self, action: Action) -> StepResult:
        self._turns += 1
        said = find_action(action.text)
        # A search takes a thread's time on a large catalogue.
        page = await call_in_thread(self._shop.visit, self._page, said) if said else None
        self._counters["actions/invalid" if page is None else "actions/valid"] += 1
        self._page = self._page if page is None else page
        self._messages = (*self._messages, action.message, await call_in_thread(self._show))
        if self._page.kind == "bought":
            score = score_purchase(self._shop.catalogue.by_asin[self._page.asin], self._page.chosen, self._goal)
            info = {"success": score.reward == 1.0, "score": score.reward, "r_type": score.r_type}
            return StepResult(self._observe(), score.reward, terminated=True, info=info)
        info = {"success": False, "valid": page is not None}
        return StepResult(self._observe(), 0.0, truncated=self._turns >= self.max_turns, info=info)

    def _show(self) -> Message:
        return show(self._shop, self._page, self._goal.instruction, show_actions=self.show_actions)

    def _observe(self) -> Observation:
        return Observation(self._messages, anchor=self._page.key)


def show(shop: Shop, page: Page, instruction: str, *, show_actions: bool = True) -> Message:
    """A page as the model sees it, with what it can do there."""
    text = shop.text(page, instruction)
    if show_actions and page.kind != "bought":
        text += "\n\nActions: " + ", ".join(["search[keywords]", *(f"click[{what}]" for what in shop.clickables(page))])
    return {"role": "user", "content": text}


def find_action(answer: str) -> str | None:
    """The action of an answer: its last line that is one, whatever else was said before; ``None`` without any."""
    for line in reversed(answer.strip().splitlines()):
        name, argument = parse_action(line.strip())
        if name in ("search", "click") and argument:
            return f"{name}[{argument}]"
    return None
