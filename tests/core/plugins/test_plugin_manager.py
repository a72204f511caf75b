"""How plugins are found, refused, and asked for what they offer."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import entrypoints
import pytest

from agentr1_core.errors import PluginError
from agentr1_core.plugins import API_VERSION, KINDS, PluginManager, hookimpl
from agentr1_core.plugins.discovery import how_to_install, installed_plugins
from agentr1_core.plugins.info import PluginInfo

CALCULATOR = """
    from agentr1_core.plugins import hookimpl
    agentr1_api_version = 1

    @hookimpl
    def agentr1_tools():
        return {"abacus": "fractions:Fraction"}
"""


def named(manager: PluginManager, dist: str) -> PluginInfo:
    return next(info for info in manager.plugins() if info.dist == dist)


def test_an_installed_plugin_is_found_and_its_offer_imported_by_name(install: Any) -> None:
    install("acme-math", "acme_math", CALCULATOR, version="2.1.0")

    manager = PluginManager.discover()

    assert manager.get("tool", "abacus") is Fraction
    assert named(manager, "acme-math") == PluginInfo(
        name="main", dist="acme-math", version="2.1.0", module="acme_math", offers={"tool": ("abacus",)}
    )


def test_offers_are_imported_only_when_asked_for(install: Any) -> None:
    install(
        "acme-heavy",
        "acme_heavy",
        """
        from agentr1_core.plugins import hookimpl
        agentr1_api_version = 1

        @hookimpl
        def agentr1_engines():
            return {"heavy": "acme_no_such_stack.engine:Engine"}
        """,
    )

    manager = PluginManager.discover()

    assert "heavy" in manager.names("engine")
    with pytest.raises(PluginError, match=r"acme-heavy 1\.0\.0") as caught:
        manager.get("engine", "heavy")
    assert "No module named 'acme_no_such_stack'" in caught.value.problem
    assert caught.value.mend == "Install what it needs: pip install 'acme-heavy'"


def test_an_offer_that_its_own_package_lacks_is_the_plugins_fault(install: Any) -> None:
    install("acme-math", "acme_math", CALCULATOR.replace("fractions:Fraction", "acme_math.abacus:Abacus"))

    with pytest.raises(PluginError, match="cannot be imported") as caught:
        PluginManager.discover().get("tool", "abacus")
    assert (caught.value.mend or "").startswith("This is a fault of acme-math 1.0.0")


@pytest.mark.parametrize(
    ("dist", "command"),
    [
        ("agentr1-backend-trl", "pip install 'agentr1[trl]'"),
        ("agentr1_engine_vllm", "pip install 'agentr1[vllm]'"),
        ("agentr1-tools", "pip install 'agentr1[tools]'"),
        ("acme-weather", "pip install 'acme-weather'"),
    ],
)
def test_the_command_that_installs_a_plugin_uses_the_smallest_extra(dist: str, command: str) -> None:
    assert how_to_install(dist) == command


def test_asking_for_what_an_extra_brings_says_how_to_install_it() -> None:
    with pytest.raises(PluginError, match="No plugin offers the engine 'vllm'") as caught:
        PluginManager().get("engine", "vllm")
    assert caught.value.mend == "Install it: pip install 'agentr1[vllm]'"


def test_a_broken_plugin_is_listed_with_its_reason_and_leaves_the_others_alone(install: Any) -> None:
    install("acme-broken", "acme_broken", "import acme_missing_package\n")
    install("acme-math", "acme_math", CALCULATOR)

    manager = PluginManager.discover()

    assert manager.get("tool", "abacus") is Fraction
    broken = named(manager, "acme-broken").broken
    assert broken is not None
    assert broken.startswith("ModuleNotFoundError: No module named 'acme_missing_package'")
    assert "acme_broken.py, line 1" in broken


@pytest.mark.parametrize("source", ["raise SystemExit(3)", "def (", "1 / 0", "raise ValueError"])
def test_whatever_a_plugin_does_at_import_stays_its_own_problem(install: Any, source: str) -> None:
    install("acme-wild", "acme_wild", source)

    assert named(PluginManager.discover(), "acme-wild").broken


def test_an_unknown_name_lists_near_ones_and_the_broken_plugins_that_may_offer_it(install: Any) -> None:
    install("acme-broken", "acme_broken", "import acme_missing_package\n")
    install("acme-math", "acme_math", CALCULATOR)

    with pytest.raises(PluginError) as caught:
        PluginManager.discover().get("tool", "abacuss")

    assert "No plugin offers the tool 'abacuss'" in caught.value.problem
    assert "acme-broken 1.0.0 could not be loaded" in caught.value.problem
    assert "acme_missing_package" in caught.value.problem
    assert caught.value.mend == "Did you mean 'abacus'?"


def test_two_distributions_with_one_name_are_an_error_and_a_qualified_name_picks_one(install: Any) -> None:
    install("acme-math", "acme_math", CALCULATOR)
    install("other-math", "other_math", CALCULATOR.replace("fractions:Fraction", "decimal:Decimal"))
    manager = PluginManager.discover()

    with pytest.raises(PluginError, match=r"several plugins: acme-math 1\.0\.0, other-math 1\.0\.0") as caught:
        manager.get("tool", "abacus")

    assert caught.value.mend == "Say 'acme-math:abacus' or 'other-math:abacus'."
    assert manager.get("tool", "acme-math:abacus") is Fraction
    assert manager.get("tool", "Acme_Math:abacus") is Fraction
    assert {"acme-math:abacus", "other-math:abacus"} <= set(manager.names("tool"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", f"it does not state its API version: add `agentr1_api_version = {API_VERSION}` to the plugin module"),
        ("agentr1_api_version = 2", "it was written for plugin API 2, this agentr1 has 1: upgrade agentr1"),
        ("agentr1_api_version = 0", "it was written for plugin API 0, this agentr1 has 1: upgrade the plugin"),
    ],
)
def test_a_plugin_for_another_api_is_refused_in_one_line(install: Any, line: str, reason: str) -> None:
    install("acme-old", "acme_old", CALCULATOR.replace("agentr1_api_version = 1", line))

    assert named(PluginManager.discover(), "acme-old").broken == reason


@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        ("def agentr1_tool(): return {}", "'agentr1_tool' is not a hook; did it mean 'agentr1_tools'?"),
        ("def agentr1_tools(): return ['abacus']", "agentr1_tools returned list"),
        ("def agentr1_tools(): return {'a:b': int}", "names are text without a colon"),
        ("def agentr1_tools(): return {'abacus': 'fractions.Fraction'}", "write it as 'package.module:Class'"),
        ("def agentr1_tools(): return {}[0]", "its agentr1_tools hook failed: KeyError: 0"),
        ("def agentr1_update(loss): pass", "hookimpl definition"),
    ],
)
def test_a_malformed_plugin_is_refused_with_the_fault(install: Any, hook: str, reason: str) -> None:
    source = f"from agentr1_core.plugins import hookimpl\nagentr1_api_version = 1\n@hookimpl\n{hook}\n"
    install("acme-odd", "acme_odd", source)

    manager = PluginManager.discover()

    assert reason in (named(manager, "acme-odd").broken or "")
    assert all(offer.plugin.dist != "acme-odd" for offer in manager.offers())


def test_a_local_class_needs_no_plugin() -> None:
    assert PluginManager().get("tool", "fractions:Fraction") is Fraction

    with pytest.raises(PluginError, match="has no attribute 'Fractoin'") as caught:
        PluginManager().get("tool", "fractions:Fractoin")
    assert "Check the spelling" in (caught.value.mend or "")


def test_an_unknown_kind_says_which_there_are() -> None:
    with pytest.raises(PluginError, match="'tools' is not a kind") as caught:
        PluginManager().get("tools", "abacus")
    assert "tool, env, flow" in (caught.value.mend or "")


def test_plugins_of_the_running_programme_are_registered_and_removed() -> None:
    class MyTools:
        @hookimpl
        def agentr1_tools(self) -> dict[str, Any]:
            return {"half": Fraction(1, 2)}

    manager = PluginManager()
    manager.register(MyTools(), name="mine")

    assert manager.get("tool", "half") == Fraction(1, 2)
    assert manager.get("tool", "mine:half") == Fraction(1, 2)
    with pytest.raises(PluginError, match="registered already"):
        manager.register(MyTools(), name="mine")

    manager.unregister("mine")
    assert manager.names("tool") == ()


def test_observers_hear_what_happens_in_a_run() -> None:
    heard: list[tuple[str, Any]] = []

    class Observer:
        @hookimpl
        def agentr1_step(self, step: Any, trajectory_id: str) -> None:
            heard.append(("step", (step, trajectory_id)))

        @hookimpl
        def agentr1_trajectory(self, trajectory: Any) -> None:
            heard.append(("trajectory", trajectory))

        @hookimpl
        def agentr1_group(self, group: Any) -> None:
            heard.append(("group", group))

        @hookimpl
        def agentr1_update(self, metrics: Any, step: int) -> None:
            heard.append(("update", (metrics, step)))

    manager = PluginManager()
    manager.register(Observer())
    step, trajectory, group = SimpleNamespace(), SimpleNamespace(), SimpleNamespace()
    manager.hook.agentr1_step(step=step, trajectory_id="t0")
    manager.hook.agentr1_trajectory(trajectory=trajectory)
    manager.hook.agentr1_group(group=group)
    manager.hook.agentr1_update(metrics={"loss": 0.5}, step=1)

    assert heard == [
        ("step", (step, "t0")),
        ("trajectory", trajectory),
        ("group", group),
        ("update", ({"loss": 0.5}, 1)),
    ]


def test_an_observer_that_raises_is_named() -> None:
    class Fine:
        @hookimpl
        def agentr1_update(self, metrics: Any, step: int) -> None:
            pass

    class Faulty:
        @hookimpl
        def agentr1_update(self, metrics: Any) -> None:
            metrics["no such figure"]

    manager = PluginManager()
    manager.register(Faulty(), name="faulty-observer")
    manager.register(Fine(), name="fine-observer")

    with pytest.raises(PluginError, match="plugin 'faulty-observer' failed: KeyError: 'no such figure'"):
        manager.hook.agentr1_update(metrics={}, step=1)


def test_an_interrupt_passes_an_observer_unchanged() -> None:
    class Interrupted:
        @hookimpl
        def agentr1_update(self) -> None:
            raise KeyboardInterrupt

    manager = PluginManager()
    manager.register(Interrupted())

    with pytest.raises(KeyboardInterrupt):
        manager.hook.agentr1_update(metrics={}, step=1)


def test_plugins_add_commands_and_a_faulty_one_is_set_aside() -> None:
    class Adds:
        @hookimpl
        def agentr1_cli(self, app: Any) -> None:
            app.append("my-command")

    class Fails:
        @hookimpl
        def agentr1_tools(self) -> dict[str, Any]:
            return {"lost": int}

        @hookimpl
        def agentr1_cli(self, app: Any) -> None:
            raise RuntimeError("no terminal")

    manager = PluginManager()
    manager.register(Fails(), name="fails")
    manager.register(Adds(), name="adds")
    app: list[str] = []
    manager.extend_cli(app)  # type: ignore[arg-type]

    assert app == ["my-command"]
    fails, adds = manager.plugins()
    assert (fails.broken or "").startswith("agentr1_cli of plugin 'fails' failed: RuntimeError: no terminal")
    assert adds.broken is None
    assert manager.names("tool") == ()


def test_an_independent_reader_finds_the_same_plugins(install: Any) -> None:
    install("acme-math", "acme_math", CALCULATOR, entry="math")
    install("acme-broken", "acme_broken", "import acme_missing_package\n", entry="broken")

    seen = {
        (point.distro.name.replace("_", "-").lower(), point.name, point.module_name)
        for point in entrypoints.get_group_all("agentr1")
    }

    assert {("acme-math", "math", "acme_math"), ("acme-broken", "broken", "acme_broken")} <= seen
    assert {(found.dist.replace("_", "-").lower(), found.name, found.module) for found in installed_plugins()} == seen


def test_every_kind_has_a_hook_and_every_offering_hook_a_kind() -> None:
    hooks = {name for name in dir(PluginManager().hook) if name.startswith("agentr1_")}
    observers = {"agentr1_step", "agentr1_trajectory", "agentr1_group", "agentr1_update", "agentr1_cli"}

    assert hooks == set(KINDS.values()) | observers


def test_importing_the_manager_imports_no_framework() -> None:
    code = "import sys, agentr1_core.plugins; print([m for m in ('torch','transformers','trl') if m in sys.modules])"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
