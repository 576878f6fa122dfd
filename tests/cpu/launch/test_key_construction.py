"""Which launches share a tuning, through launch_autotuned; and what a kernel's digest depends on."""

from __future__ import annotations

import enum
import sys

import numpy as np
import odd_kernels
import pytest
import sample_kernels
import torch
import triton
import triton.language as tl
from digested import MODULE, PLAIN, module_of
from launching import outcome

import launchkit
from launchkit import hostonly
from launchkit.dispatch import fingerprint
from launchkit.errors import UnfingerprintableError

pytestmark = pytest.mark.usefixtures("measuring")


class Level(enum.IntEnum):
    LOW = 1


class Tunings:
    """A do_bench that counts: each config takes as long as it stands far back in the list."""

    def __init__(self):
        self.calls = 0

    def __call__(self, call, quantiles):
        call()
        self.calls += 1
        return [float(self.calls)] * 3


def tuned(jit, configs, key, make=launchkit.autotuned):
    """An autotuned kernel of two configs, and a function that counts its tunings so far."""
    bench = Tunings()
    kernel = make(configs, list(key), do_bench=bench)(jit)
    return kernel, lambda: bench.calls // 2


def warps():
    return [triton.Config({}, num_warps=2), triton.Config({}, num_warps=4)]


def tensor(dtype=torch.float32):
    return torch.empty(64, dtype=dtype)


def launch(kernel, *args, **kwargs):
    return launchkit.launch_autotuned(kernel, (1,), *args, **kwargs)


def test_keywords_in_two_orders_with_unlike_dtypes_are_two_tunings():
    kernel, tunings = tuned(sample_kernels.copy, sample_kernels.configs(16, 32), ["n"])
    half, single = tensor(torch.float16), tensor()
    launch(kernel, x_ptr=half, y_ptr=single, n=4, stride=2)
    launch(kernel, y_ptr=half, x_ptr=single, n=4, stride=2)
    assert tunings() == 2


def test_keywords_in_two_orders_with_the_same_values_are_one_tuning():
    kernel, tunings = tuned(sample_kernels.copy, sample_kernels.configs(16, 32), ["n"])
    half, single = tensor(torch.float16), tensor()
    launch(kernel, x_ptr=half, y_ptr=single, n=4, stride=2)
    launch(kernel, stride=2, n=4, y_ptr=single, x_ptr=half)
    launch(kernel, half, single, 4, 2)
    assert tunings() == 1


@triton.jit
def three(a, b, c, n):
    if a is not None:
        tl.store(a, n)
    if b is not None:
        tl.store(b, n)
    if c is not None:
        tl.store(c, n)


def test_none_among_tensors_keeps_its_place():
    kernel, tunings = tuned(three, warps(), ["n"])
    launch(kernel, tensor(torch.float16), None, tensor(), 4)
    launch(kernel, tensor(torch.float16), tensor(), None, 4)
    assert tunings() == 2
    launch(kernel, tensor(torch.float16), None, tensor(), 4)
    assert tunings() == 2


@pytest.mark.parametrize(
    "jit", [odd_kernels.scalar, odd_kernels.constant], ids=["runtime", "constexpr"]
)
def test_1_true_and_1_point_0_are_three_tunings(jit):
    name = jit.arg_names[1]
    kernel, tunings = tuned(jit, warps(), [name])
    for value in (1, True, 1.0) * 2:
        launch(kernel, tensor(), value)
    assert tunings() == 3


def test_number_and_its_text_are_two_tunings():
    kernel, tunings = tuned(odd_kernels.labelled, warps(), ["LABEL"])
    for label in (1, "1", "1.0", "True", "None", None):
        launch(kernel, tensor(), label)
    assert tunings() == 6


@pytest.mark.parametrize(
    "jit", [odd_kernels.scalar, odd_kernels.constant], ids=["runtime", "constexpr"]
)
def test_nan_key_is_tuned_once(jit):
    kernel, tunings = tuned(jit, warps(), [jit.arg_names[1]])
    for _ in range(3):
        launch(kernel, tensor(), float("nan"))
    assert tunings() == 1


def test_zero_and_minus_zero_are_one_tuning():
    kernel, tunings = tuned(odd_kernels.scalar, warps(), ["value"])
    for value in (0.0, -0.0, 0.0):
        launch(kernel, tensor(), value)
    assert tunings() == 1


def test_text_of_a_dtype_is_not_the_dtype():
    kernel, tunings = tuned(odd_kernels.labelled, warps(), ["LABEL"])
    for label in ("torch.float16", torch.float16, "fp16", tl.float16):
        launch(kernel, tensor(torch.float16), label)
    assert tunings() == 4


LABELS = ["", ", ", "'", '"', "\n", "\\", "é漢", "a b", "x" * 3000, "\x00"]


def test_odd_texts_are_a_tuning_each():
    kernel, tunings = tuned(odd_kernels.labelled, warps(), ["LABEL"])
    for label in LABELS * 2:
        launch(kernel, tensor(), label)
    assert tunings() == len(LABELS)


KEY_VALUES = [
    tl.float32,
    tl.int1,
    torch.bfloat16,
    Level.LOW,
    2**70,
    -(2**80),
    1e308,
    5e-324,
    (1, "a"),
    ((), (2,)),
]


@pytest.mark.parametrize("value", KEY_VALUES, ids=repr)
def test_key_value_with_a_stable_text_is_tuned_once_and_stored(value, memory_store):
    kernel, tunings = tuned(odd_kernels.labelled, warps(), ["LABEL"])
    for _ in range(2):
        launch(kernel, tensor(), value)
    assert tunings() == 1
    assert len(list(memory_store.records())) == 1
    again, tunings_again = tuned(odd_kernels.labelled, warps(), ["LABEL"])
    launch(again, tensor(), value)
    assert tunings_again() == 0


UNSTABLE = [
    [1, 2],
    {"a": 1},
    {1},
    np.int64(3),
    np.float32(2.5),
    1j,
    b"bytes",
    tl.constexpr(4),
    object,
]


@pytest.mark.parametrize("value", UNSTABLE, ids=repr)
def test_key_value_without_a_stable_text_goes_to_tritons_autotuner(value, memory_store):
    ours, tunings = tuned(odd_kernels.labelled, warps(), ["LABEL"])
    theirs, their_tunings = tuned(odd_kernels.labelled, warps(), ["LABEL"], make=triton.autotune)
    x = tensor()
    for _ in range(2):
        expected = outcome(lambda: theirs[(2,)](x, value))
        assert outcome(lambda: launchkit.launch_autotuned(ours, (2,), x, value)) == expected
        assert tunings() == their_tunings()
    assert list(memory_store.records()) == []


def test_tensor_as_key_goes_to_tritons_autotuner(memory_store):
    ours, tunings = tuned(odd_kernels.scalar, warps(), ["x_ptr"])
    theirs, _ = tuned(odd_kernels.scalar, warps(), ["x_ptr"], make=triton.autotune)
    x = tensor()
    for _ in range(3):
        expected = outcome(lambda: theirs[(2,)](x, 3))
        assert outcome(lambda: launchkit.launch_autotuned(ours, (2,), x, 3)) == expected
    assert tunings() == 1
    assert list(memory_store.records()) == []


def test_config_value_without_a_stable_text_goes_to_tritons_autotuner(memory_store):
    configs = [triton.Config({"LABEL": [1]}), triton.Config({"LABEL": [2]})]
    ours, _ = tuned(odd_kernels.labelled, configs, [])
    theirs, _ = tuned(odd_kernels.labelled, configs, [], make=triton.autotune)
    x = tensor()
    expected = outcome(lambda: theirs[(2,)](x))
    assert outcome(lambda: launchkit.launch_autotuned(ours, (2,), x)) == expected
    assert list(memory_store.records()) == []


def test_default_left_out_and_given_in_any_way_is_one_tuning():
    configs = [triton.Config({"SIZE": 16}), triton.Config({"SIZE": 32})]
    kernel, tunings = tuned(odd_kernels.optional, configs, ["n", "SPLIT"])
    launch(kernel, tensor())
    launch(kernel, tensor(), 3)
    launch(kernel, tensor(), n=3, SPLIT=1)
    launch(kernel, x_ptr=tensor(), SPLIT=1)
    assert tunings() == 1
    launch(kernel, tensor(), 4)
    launch(kernel, tensor(), SPLIT=2)
    assert tunings() == 3


def test_empty_key_tunes_once_for_all_values():
    kernel, tunings = tuned(sample_kernels.copy, sample_kernels.configs(16, 32), [])
    for n in (1, 16, 7):
        launch(kernel, tensor(), tensor(), n, 2)
    assert tunings() == 1
    launch(kernel, tensor(torch.float16), tensor(), 1, 2)
    assert tunings() == 2


@triton.jit
def without_tensors(n, m):
    tl.device_assert(n != m)


def test_kernel_without_tensors_is_tuned_by_its_key_alone():
    kernel, tunings = tuned(without_tensors, warps(), ["n"])
    for n, m in ((1, 2), (1, 3), (2, 1)):
        launch(kernel, n, m)
    assert tunings() == 2


def test_unkeyed_values_and_strides_share_a_tuning():
    kernel, tunings = tuned(sample_kernels.copy, sample_kernels.configs(16, 32), ["n"])
    for stride in (1, 2, 16):
        launch(kernel, tensor(), tensor()[1:], 64, stride)
    assert tunings() == 1


# -- the kernel's digest


def digest_of(tmp_path, source, name="digested"):
    import linecache

    linecache.clearcache()
    return fingerprint.kernel_id(module_of(tmp_path, source, name).kernel, "kernel").digest


SOURCE = MODULE.format(**PLAIN)

SAME_DIGEST = {
    "comment": SOURCE.replace("    offsets =", "    # why\n    offsets ="),
    "comment at the end of a line": SOURCE.replace("SIZE)\n", "SIZE)  # why\n"),
    "blank lines": SOURCE.replace("    offsets =", "\n\n    offsets ="),
    "moved down": "\n" * 40 + SOURCE,
    "spaces": SOURCE.replace("helper(offsets) + n", "helper( offsets )+n"),
    "broken lines": SOURCE.replace("helper(offsets) + n", "helper(\n        offsets\n    ) + n"),
    "deeper indentation": SOURCE.replace("    return", "        return"),
    "unused global": SOURCE.replace("OTHER = tl.constexpr(9)", "OTHER = tl.constexpr(10)"),
    "other function in the file": SOURCE + "\n\ndef unrelated():\n    return 1\n",
}


@pytest.mark.parametrize("change", SAME_DIGEST)
def test_change_without_meaning_keeps_the_digest(tmp_path, change):
    assert SAME_DIGEST[change] != SOURCE
    assert digest_of(tmp_path, SAME_DIGEST[change]) == digest_of(tmp_path, SOURCE)


def test_renamed_file_keeps_the_digest_and_a_declared_name(tmp_path):
    assert digest_of(tmp_path, SOURCE, "another") == digest_of(tmp_path, SOURCE)
    first, second = module_of(tmp_path, SOURCE, "one"), module_of(tmp_path, SOURCE, "two")
    assert fingerprint.kernel_id(first.kernel, "mine") == fingerprint.kernel_id(
        second.kernel, "mine"
    )
    assert fingerprint.kernel_id(first.kernel).name == "one.kernel"


OTHER_DIGEST = {
    "body": MODULE.format(**{**PLAIN, "body": "2"}),
    "helper": MODULE.format(**{**PLAIN, "helper": "3"}),
    "global": MODULE.format(**{**PLAIN, "factor": "4"}),
    "type of the global": MODULE.format(**{**PLAIN, "factor": "3.0"}),
    "default": MODULE.format(**{**PLAIN, "default": "32"}),
    "do_not_specialize": MODULE.format(**{**PLAIN, "options": '(do_not_specialize=["n"])'}),
    "alignment": MODULE.format(
        **{**PLAIN, "options": '(do_not_specialize_on_alignment=["x_ptr"])'}
    ),
    "global of the helper": SOURCE.replace("return x * 2", "return x * OTHER"),
    "split statement": SOURCE.replace("= tl.arange(0, SIZE)\n", "= tl\n    tl.arange(0, SIZE)\n"),
    "indentation that matters": SOURCE.replace(
        "    return x * 2", "    if x == 0:\n        x = x\n    return x * 2"
    ),
}


@pytest.mark.parametrize("change", OTHER_DIGEST)
def test_change_with_meaning_changes_the_digest(tmp_path, change):
    assert OTHER_DIGEST[change] != SOURCE
    assert digest_of(tmp_path, OTHER_DIGEST[change]) != digest_of(tmp_path, SOURCE)


def test_line_end_that_ends_a_statement_counts():
    assert fingerprint.source_tokens("a = b\n-c\n") != fingerprint.source_tokens("a = b - c\n")
    assert fingerprint.source_tokens("a = f\n(b)\n") != fingerprint.source_tokens("a = f(b)\n")


F_STRINGS = [
    "f'a{b}c'",
    'f"{x!r:>{width}}"',
    "rf'{a}{b:x}'",
    "f'''a\n{b}\nc'''",
    "f'{a}' f'{b}'",
    "f'{{}}'",
    "F'{f(1)}'",
]


@pytest.mark.parametrize("text", F_STRINGS)
def test_f_string_is_one_token_in_every_python_version(text):
    expected = ["f'{a}'", "f'{b}'"] if text == "f'{a}' f'{b}'" else [text]
    tokens = fingerprint.source_tokens(f"x = {text}\n")
    assert tokens[:2] == ["x", "="]
    assert [token for token in tokens[2:] if not token.startswith("<")] == expected


def test_kernel_that_reads_a_list_is_tuned_by_triton_and_not_stored(
    tmp_path, memory_store, monkeypatch
):
    source = SOURCE.replace("FACTOR = tl.constexpr(3)", "FACTOR = tl.constexpr([1, 2])").replace(
        "+ FACTOR", "+ FACTOR[0]"
    )
    module = module_of(tmp_path, source, "reads_list")
    monkeypatch.setitem(sys.modules, "reads_list", module)
    with pytest.raises(UnfingerprintableError):
        fingerprint.kernel_id(module.kernel)
    ours, _ = tuned(module.kernel, warps(), ["n"])
    theirs, _ = tuned(module.kernel, warps(), ["n"], make=triton.autotune)
    x = tensor()
    for _ in range(2):
        expected = outcome(lambda: theirs[(2,)](x, 3))
        assert outcome(lambda: launchkit.launch_autotuned(ours, (2,), x, 3)) == expected
    assert list(memory_store.records()) == []
    assert hostonly.launches() or isinstance(expected, type)
