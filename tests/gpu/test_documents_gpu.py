"""The blocks of documents that need a GPU: ``python gpu`` and ``console gpu``."""

from __future__ import annotations

import pytest
from document_runs import has_gpu_blocks, run_document
from documents import documents, name_of
from triton.runtime.autotuner import Autotuner

PATHS = [pytest.param(path, id=name_of(path)) for path in documents() if has_gpu_blocks(path)]


@pytest.fixture
def one_config(monkeypatch):
    """Leave each kernel that is made its first config, so that nothing is measured."""
    whole = Autotuner.__init__

    def first(self, *args, **kwargs):
        whole(self, *args, **kwargs)
        self.configs = self.configs[:1]

    monkeypatch.setattr(Autotuner, "__init__", first)


@pytest.mark.parametrize("path", PATHS)
def test_blocks_for_a_gpu_run_and_print_what_they_show(path, tmp_path, one_config):
    run_document(path, tmp_path, gpu=True)
