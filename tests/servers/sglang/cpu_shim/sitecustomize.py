"""What SGLang lacks on a machine without a GPU, for the tests only. Python imports it at start where it is on the path.

The wheels of SGLang on PyPI are for GPUs. Without one, three things are missing: the package ``sgl_kernel``, which has
no build for CPUs (beside this file, empty); ``triton``, for which SGLang brings a mock of its own that it installs on
Macs only; and the operators of ``torchvision``, whose build for CUDA cannot load its library.
"""

import importlib.util
import platform
import sys
from unittest import mock


class Installer:
    """Puts each stand-in in place just before the import that would fail without it."""

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            declare_operators()
        elif name == "sglang":
            sys.meta_path.remove(self)
            try:
                mock_triton(importlib.util.find_spec(name))
            finally:
                sys.meta_path.insert(0, self)
        return None  # the import itself goes on as usual


def declare_operators():
    """Declare the operators that torchvision adds shape rules to when it is imported."""
    import torch

    if hasattr(torch.ops.torchvision, "nms"):
        return
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    declare_operators.library = library  # torch forgets what a library declared when it is collected


def mock_triton(sglang):
    """Install SGLang's own mock of triton as it would on a Mac, and leave torch's part for Macs as it was."""
    import torch

    if importlib.util.find_spec("triton") is not None:
        return
    folder = sglang.submodule_search_locations[0]
    spec = importlib.util.spec_from_file_location("sglang_stand_ins", f"{folder}/_platform_stubs.py")
    stand_ins = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = stand_ins
    spec.loader.exec_module(stand_ins)
    before = set(vars(torch.mps))
    with (
        mock.patch.object(sys, "platform", "darwin"),
        mock.patch.object(platform, "machine", return_value="arm64"),
        mock.patch.object(torch.backends.mps, "is_available", return_value=True),
        mock.patch.object(stand_ins, "_patch_non_blocking"),
    ):
        stand_ins.install_platform_stubs()
    for name in set(vars(torch.mps)) - before:
        delattr(torch.mps, name)


sys.meta_path.insert(0, Installer())
