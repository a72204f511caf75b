"""The names of a new package: of the distribution, of the module, of what it offers, of its class.

One name is given and the others follow from it. A name that would get in somebody's way is refused.
"""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from dataclasses import dataclass

from agentr1_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Names:
    """What a package called ``acme-weather`` is called in each place."""

    #: What pip installs: ``acme-weather``.
    dist: str
    #: What Python imports, and what run files and models say: ``acme_weather``.
    package: str
    #: What the class is called: ``AcmeWeather``.
    title: str


def names_for(name: str) -> Names:
    """The names that follow from one.

    Raises:
        ConfigError: It is no name of a package, or it is taken.
    """
    good = "Use letters, digits and single hyphens, beginning with a letter: acme-weather."
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*([-_.][A-Za-z0-9]+)*", name):
        raise ConfigError(f"'{name}' is no name of a package.", good)
    package = re.sub(r"[-.]", "_", name).lower()
    if keyword.iskeyword(package) or keyword.issoftkeyword(package):
        raise ConfigError(f"'{package}' is a word of Python's own.", "Choose another name, such as acme-" + name + ".")
    if package in sys.stdlib_module_names or package == "tests":
        raise ConfigError(f"'{package}' would hide a module of Python.", "Choose another name.")
    if importlib.util.find_spec(package) is not None:
        raise ConfigError(
            f"A package '{package}' is installed already.", "Choose another name, or uninstall that package first."
        )
    title = "".join(part[:1].upper() + part[1:] for part in package.split("_"))
    return Names(re.sub(r"[_.]", "-", name).lower(), package, title)
