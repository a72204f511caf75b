"""A stand-in for SGLang's kernels, which have no build for CPUs: every name is there, and raises when it is called."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*args, **kwargs):
        raise NotImplementedError(f"sgl_kernel.{name} has no build for CPUs")

    return missing
