"""Makes bare problems playable: writes ``game.tw-pddl`` beside each ``problem.json``.

    python -m agentr1_recipes.alfworld.build FOLDER --python ~/alfworld/bin/python

Games that were made with another version of ALFWorld carry that version's grammar, with which the installed TextWorld
may say odd things ("You arrive at loc 23"); ``--again`` wraps those games anew. The recipe itself plays bare problems
as they are; this is for everything else that reads ALFWorld's layout.
"""

from __future__ import annotations

import argparse
import json
import lzma
import subprocess
import sys
from pathlib import Path

from agentr1_core.errors import AgentR1Error, DataError, PluginError
from agentr1_recipes.alfworld.env import check_interpreter
from agentr1_recipes.alfworld.process import INSTALL

_PATHS = "import json, alfworld.info as i; print(json.dumps([i.ALFRED_PDDL_PATH, i.ALFRED_TWL2_PATH]))"


def domain_and_grammar(python: str | None = None) -> tuple[str, str]:
    """The PDDL domain and the grammar of the installed ALFWorld.

    Raises:
        PluginError: The interpreter has none.
    """
    check_interpreter(python)
    command = [python or sys.executable, "-I", "-c", _PATHS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise PluginError(f"ALFWorld cannot be used with '{command[0]}': {last}.", INSTALL)
    domain, grammar = json.loads(done.stdout.splitlines()[-1])
    return Path(domain).read_text(encoding="utf-8"), Path(grammar).read_text(encoding="utf-8")


def build_games(folder: Path, *, python: str | None = None, again: bool = False) -> int:
    """Write the playable game beside every bare problem below a folder; how many were written.

    Args:
        folder: Searched through.
        python: Interpreter that has ``alfworld``.
        again: Also wrap complete games anew that have no bare problem beside them.

    Raises:
        DataError: There is no problem, or one that cannot be read.
    """
    domain, grammar = domain_and_grammar(python)
    sources = [*folder.rglob("problem.json"), *folder.rglob("problem.json.xz")]
    if again:
        bare = {source.parent for source in sources}
        sources += [game for game in folder.rglob("game.tw-pddl") if game.parent not in bare]
    if not sources:
        raise DataError(f"There is no problem.json below '{folder}'.", "Name the folder that holds the games.")
    for source in sources:
        problem = _read(source)
        game = {
            "pddl_domain": domain,
            "grammar": grammar.replace("UNKNOWN GOAL", problem["goal"].rstrip(".")),
            "pddl_problem": problem["pddl_problem"],
            "solvable": problem.get("solvable", True),
        }
        source.with_name("game.tw-pddl").write_text(json.dumps(game), encoding="utf-8")
    return len(sources)


def _read(source: Path) -> dict[str, str]:
    try:
        data = source.read_bytes()
        problem = json.loads(lzma.decompress(data) if source.suffix == ".xz" else data)
        if "goal" not in problem:  # a complete game: its grammar says the goal
            said = problem["grammar"].partition("Your task is to: ")[2]
            problem["goal"] = said[: said.index('"')]
        return {"goal": problem["goal"], "pddl_problem": problem["pddl_problem"], "solvable": problem["solvable"]}
    except (KeyError, ValueError, lzma.LZMAError) as error:
        raise DataError(
            f"'{source}' is no ALFWorld problem: {type(error).__name__}: {error}.",
            "It must be JSON with `goal` and `pddl_problem`.",
        ) from error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds problem.json files at any depth")
    parser.add_argument("--python", help="interpreter that has alfworld; this one when left out")
    parser.add_argument("--again", action="store_true", help="also wrap anew games that are complete already")
    options = parser.parse_args()
    try:
        written = build_games(options.folder, python=options.python, again=options.again)
    except AgentR1Error as error:
        sys.exit(str(error))
    print(f"{written} games are playable below {options.folder}")


if __name__ == "__main__":
    main()
