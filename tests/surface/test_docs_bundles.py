"""The bundles that documents import: what tests/support/documented.py makes, of the guide's kernel."""

from __future__ import annotations

import importlib.util

import documented
import pytest
import torch
from documents import ROOT, blocks_of

import launchkit
from launchkit import hostonly
from launchkit.store import bundle


@pytest.mark.parametrize("name", documented.BUNDLES)
def test_bundle_is_what_it_is_made_of(name, tmp_path):
    bundle.write(tmp_path / name, documented.BUNDLES[name])
    assert (documented.DATA / name).read_bytes() == (tmp_path / name).read_bytes()


def test_bundles_are_of_the_kernel_of_the_guide(tmp_path):
    guide = blocks_of(ROOT / "docs/guides/share.md")
    (block,) = (each for each in guide if each.file == "add_one.py")
    path = tmp_path / str(block.file)
    path.write_text(block.text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("kernel_of_the_guide", path)
    module = importlib.util.module_from_spec(spec)
    with hostonly.activate(arch=90):
        spec.loader.exec_module(module)
        x = torch.empty(100_000)
        said = launchkit.explain(module.add_one, module.by_blocks, x, x, 100_000).as_dict()
    wanted = said["wanted"]
    assert said["kernel"] == documented.KERNEL.name
    assert documented.KERNEL.digest.startswith(wanted["kernel.digest"])
    dtypes = {f"dtype {name}": dtype or "none" for name, dtype in documented.DTYPES}
    assert dtypes.items() <= wanted.items()
