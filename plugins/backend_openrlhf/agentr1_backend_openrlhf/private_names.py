"""Everything of OpenRLHF that is used here and is no public interface, in one place, with the versions it holds for.

OpenRLHF has no registry for trainers, samples or estimators; these names are where its classes are joined.
``check_version`` is called before any of them is touched.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from agentr1_core.errors import PluginError

#: First version that works, and the first that may not.
OLDEST, TOO_NEW = (0, 11, 2), (0, 12)


def check_version() -> str:
    """The installed version of OpenRLHF.

    Raises:
        PluginError: It is missing or not supported.
    """
    wanted = f"openrlhf>={'.'.join(map(str, OLDEST))},<{'.'.join(map(str, TOO_NEW))}"
    try:
        found = version("openrlhf")
    except PackageNotFoundError:
        raise PluginError(
            "Backend 'openrlhf': OpenRLHF is not installed in this environment.",
            f"Install `{wanted}` here, or name the interpreter of an environment that has it under `backend.python`.",
        ) from None
    numbers = tuple(int(part) for part in found.split("+")[0].split(".")[:3] if part.isdigit())
    if not OLDEST <= numbers < TOO_NEW:
        raise PluginError(f"Backend 'openrlhf' does not support OpenRLHF {found}.", f"Install `{wanted}`.")
    return found
