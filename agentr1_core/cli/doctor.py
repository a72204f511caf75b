"""``agentr1 doctor``: which stacks are installed, in which versions, and what devices there are.

Versions are read from package metadata. Only the devices need torch, which a process of its own imports, so that a
broken installation is reported instead of crashing the doctor.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from typing import Any

from agentr1_core.plugins.discovery import how_to_install

#: What people look for, with what each is for and the distribution that brings it; none where no plugin is out yet.
STACKS = (
    ("agentr1", "the core", "agentr1"),
    ("torch", "models and training", "agentr1-backend-trl"),
    ("transformers", "models, the embedded engine", "agentr1-engine-transformers"),
    ("trl", "the TRL backend", "agentr1-backend-trl"),
    ("peft", "LoRA", "peft"),
    ("accelerate", "several processes", "agentr1-backend-trl"),
    ("deepspeed", "sharded training", "deepspeed"),
    ("vllm", "the vLLM engine", "agentr1-engine-vllm"),
    ("sglang", "the SGLang engine", "agentr1-engine-sglang"),
    ("openrlhf", "the OpenRLHF backend", "agentr1-backend-openrlhf"),
    ("renderers", "exact rendering", "agentr1"),
    ("datasets", "data sets", "agentr1"),
)

_PROBE = """
import json, torch
devices = []
for i in range(torch.cuda.device_count()):
    memory = torch.cuda.get_device_properties(i).total_memory
    devices.append({"name": torch.cuda.get_device_name(i), "memory_gib": round(memory / 2**30, 1)})
if torch.backends.mps.is_available():
    devices.append({"name": "Apple MPS", "memory_gib": None})
build = torch.version.cuda or getattr(torch.version, "hip", None) or "cpu"
print(json.dumps({"threads": torch.get_num_threads(), "devices": devices, "build": build}))
"""


def doctor(*, as_json: bool = False) -> None:
    """Print the state of this environment."""
    versions = {name: _version(name) for name, _, _ in STACKS}
    devices = _devices() if versions["torch"] else {"error": "torch is not installed"}
    if as_json:
        machine = {"python": platform.python_version(), "cores": os.cpu_count()}
        print(json.dumps({"stacks": versions, "devices": devices, **machine}, indent=2))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("Package", "Version", "For", "If you want it"):
        table.add_column(column, header_style="bold")
    for name, purpose, dist in STACKS:
        found = versions[name]
        state = f"[green]{found}[/]" if found else "[dim]not installed[/]"
        advice = "" if found and dist else how_to_install(dist) if dist else "no plugin for it is released yet"
        table.add_row(name, state, purpose, f"[dim]{escape(advice)}[/]")
    console = Console()
    console.print(table)
    console.print(f"\nPython {platform.python_version()} on {platform.system()}, {os.cpu_count()} CPU cores")
    console.print(_say_devices(devices), markup=False)


def _version(dist: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(dist)
    except PackageNotFoundError:
        return None


def _devices() -> dict[str, Any]:
    try:
        done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return {"error": "importing torch took more than two minutes"}
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return {"error": f"torch cannot be imported: {last[0]}"}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _say_devices(devices: dict[str, Any]) -> str:
    if "error" in devices:
        return f"Devices: {devices['error']}"
    if not devices["devices"]:
        return f"Devices: CPU only (torch build {devices['build']}, {devices['threads']} threads)"
    listed = ", ".join(
        f"{each['name']} ({each['memory_gib']:g} GiB)" if each["memory_gib"] else each["name"]
        for each in devices["devices"]
    )
    return f"Devices: {listed} (torch build {devices['build']})"
