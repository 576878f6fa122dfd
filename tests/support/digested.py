"""A module with a kernel, written to a file so that its source can be changed."""

import importlib.util

MODULE = """\
import triton
import triton.language as tl

FACTOR = tl.constexpr({factor})
OTHER = tl.constexpr(9)


@triton.jit
def helper(x):
    return x * {helper}


@triton.jit{options}
def kernel(x_ptr, n, SIZE: tl.constexpr = {default}):
    offsets = tl.arange(0, SIZE)
    tl.store(x_ptr + offsets, helper(offsets) + n * {body} + FACTOR)
"""

PLAIN = {"factor": "3", "helper": "2", "options": "", "default": "16", "body": "1"}


def module_of(tmp_path, source, name="digested"):
    path = tmp_path / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
