"""Plays ALFWorld games in a process of its own: one JSON request a line in, one JSON answer a line out.

``GameProcess`` starts this file with the interpreter that has ``alfworld``, which need not be the trainer's; so it
imports nothing of agentr1 and runs on any Python that ALFWorld runs on. It ends when its input ends.

Requests are ``{"do": "load", "game": path, "expert": bool}`` and ``{"do": "command", "command": text}``. Both are
answered by a view (``text``, ``commands``, ``state``, ``won``, and ``expert`` if asked for) or by ``{"error": why}``.
"""

import hashlib
import json
import lzma
import os
import random
import re
import shutil
import sys
import tempfile

WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
#: On offer everywhere, and nothing but a list of what can be typed.
NOT_LISTED = ("help",)


class Player:
    """Holds the game that is played now."""

    def __init__(self):
        import textworld
        from alfworld.agents.environment import alfred_tw_env

        self.textworld = textworld
        self.wrappers = [alfred_tw_env.AlfredDemangler]
        self.expert_wrapper = alfred_tw_env.AlfredExpert
        self.env = None
        self.folder = None

    def load(self, game, expert=False):
        if self.env is not None:
            self.env.close()
            self.env = None
        if self.folder is not None:
            self.folder.cleanup()
        self.folder = tempfile.TemporaryDirectory()
        random.seed(0)  # the expert draws; a game must go the same way each time
        infos = self.textworld.EnvInfos(won=True, admissible_commands=True, facts=True)
        wrappers = list(self.wrappers)
        if expert:
            infos.extras.append("expert_plan")
            wrappers.append(self.expert_wrapper)
        self.env = self.textworld.start(playable(game, self.folder.name), infos, wrappers=wrappers)
        return self.view(self.env.reset())

    def command(self, command):
        if self.env is None:
            raise RuntimeError("no game is loaded")
        state, _, _ = self.env.step(command)
        return self.view(state)

    def view(self, state):
        text = re.sub(r"\n\s*\n", "\n", state.feedback.replace(WELCOME, "")).strip()
        facts = "\n".join(sorted(str(fact) for fact in state["facts"]))
        plan = state.get("extra.expert_plan")
        return {
            "text": text,
            "commands": [each for each in state.admissible_commands if each not in NOT_LISTED],
            "state": hashlib.sha256((text + "\n" + facts).encode()).hexdigest()[:24],
            "won": bool(state["won"]),
            "expert": plan[0] if plan else None,
        }


def playable(game, folder):
    """The path of a game that TextWorld can load; a bare problem is wrapped and put into ``folder``.

    Beside a game lies ``traj_data.json``, which says the task to ALFWorld's expert; a bare problem may say it itself.
    """
    if game.endswith(".tw-pddl"):
        if not os.path.isfile(game):
            raise FileNotFoundError(game)
        return game
    opener = lzma.open if game.endswith(".xz") else open
    with opener(game, "rt", encoding="utf-8") as source:
        problem = json.load(source)
    beside = os.path.join(os.path.dirname(game), "traj_data.json")
    if os.path.isfile(beside):
        shutil.copy(beside, folder)
    elif "pddl_params" in problem:
        with open(os.path.join(folder, "traj_data.json"), "w", encoding="utf-8") as target:
            json.dump({"task_type": problem["task_type"], "pddl_params": problem["pddl_params"]}, target)
    path = os.path.join(folder, "game.tw-pddl")
    with open(path, "w", encoding="utf-8") as target:
        json.dump(wrap(problem), target)
    return path


def wrap(problem):
    """A bare problem (``pddl_problem``, ``goal``) with the domain and the grammar of the installed ALFWorld."""
    from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH

    with open(ALFRED_PDDL_PATH, encoding="utf-8") as domain, open(ALFRED_TWL2_PATH, encoding="utf-8") as grammar:
        return {
            "pddl_domain": domain.read(),
            "grammar": grammar.read().replace("UNKNOWN GOAL", problem["goal"].rstrip(".")),
            "pddl_problem": problem["pddl_problem"],
            "solvable": problem.get("solvable", True),
        }


def version_of(name):
    from importlib.metadata import version

    return version(name)


def serve():
    # What libraries print must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)

    def say(answer):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        player = Player()
        say({"alfworld": version_of("alfworld"), "textworld": version_of("textworld")})
    except Exception as error:
        say({"error": f"{type(error).__name__}: {error}"})
        return
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "load":
                say(player.load(request["game"], request.get("expert", False)))
            else:
                say(player.command(request["command"]))
        except Exception as error:
            say({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    # The modules beside this file are not for this interpreter.
    sys.path[:] = [each for each in sys.path if os.path.abspath(each) != os.path.dirname(os.path.abspath(__file__))]
    serve()
