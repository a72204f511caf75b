"""Stands in for vLLM where it is not installed: OpenRLHF imports these names even in a run without vLLM engines.

Nothing here samples. Where the real vLLM is installed, this folder is not in the path.
"""

__version__ = "0.29.0"


class SamplingParams:
    """The arguments it was given, as attributes."""

    def __init__(self, **settings):
        self.__dict__.update(settings)


class AsyncEngineArgs:
    """There is no engine to configure."""

    def __init__(self, *_args, **_kwargs):
        raise RuntimeError("vLLM is not installed")
