"""Kernels that read and write their arguments in every way that Triton's language has."""

import triton
import triton.language as tl


@triton.jit
def copies(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def doubles(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(x_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def counts(x_ptr, sum_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.atomic_add(sum_ptr, tl.sum(tl.load(x_ptr + offsets, mask=offsets < n, other=0)))


@triton.jit
def locks(lock_ptr, y_ptr):
    if tl.atomic_cas(lock_ptr, 0, 1) == 0:
        tl.store(y_ptr, 1.0)


@triton.jit
def scatters(index_ptr, x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + tl.load(index_ptr + offsets), tl.load(x_ptr + offsets))


@triton.jit
def walks(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x_ptrs, y_ptrs = x_ptr + offsets, y_ptr + offsets
    for _ in range(n):
        tl.store(y_ptrs, tl.load(x_ptrs))
        x_ptrs += BLOCK
        y_ptrs += BLOCK


@triton.jit
def swaps(x_ptr, y_ptr, n):
    source, target = x_ptr, y_ptr
    for _ in range(n):
        tl.store(target, tl.load(source))
        source, target = target, source


@triton.jit
def waits(x_ptr, y_ptr, n):
    place = y_ptr
    done = 0
    while done < n:
        tl.store(place, tl.load(x_ptr + done))
        place += 1
        done += 1


@triton.jit
def selects(x_ptr, y_ptr, z_ptr, n):
    target = y_ptr if n > 5 else z_ptr
    tl.store(target, tl.load(x_ptr))


@triton.jit
def renames(x_ptr, y_ptr, z_ptr):
    target = z_ptr
    z_ptr = y_ptr
    y_ptr = x_ptr
    tl.store(target, tl.load(y_ptr) + tl.load(z_ptr))


@triton.jit
def carries(x_ptr, y_ptr, n):
    target = x_ptr
    for _ in range(n):
        tl.store(target, 1.0)
        target = y_ptr
    tl.store(target + 1, 2.0)


@triton.jit
def branches(x_ptr, y_ptr, z_ptr, n):
    target = x_ptr
    source = y_ptr
    if n > 5:
        target, source = y_ptr, z_ptr
        tl.debug_barrier()
    for i in range(n):
        if i > tl.load(source):
            target += 1
        else:
            source += 1
        tl.store(target, 1.0)


@triton.jit
def returns_early(x_ptr, y_ptr, n):
    if n > tl.load(x_ptr):
        return
    tl.store(y_ptr, 1.0)


@triton.jit
def _store(pointer, value):
    tl.store(pointer, value)


@triton.jit(noinline=True)
def _store_elsewhere(pointer, value):
    tl.store(pointer, value)


@triton.jit
def calls(x_ptr, y_ptr):
    _store(y_ptr, tl.load(x_ptr))


@triton.jit
def calls_noinline(x_ptr, y_ptr):
    _store_elsewhere(y_ptr, tl.load(x_ptr))


@triton.jit
def follows(table_ptr, x_ptr):
    target = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    tl.store(target, tl.load(x_ptr))


@triton.jit
def assembles(x_ptr, y_ptr):
    value = tl.inline_asm_elementwise(
        "mov.u32 $0, %smid; // %x_ptr", "=r,r", [tl.load(x_ptr)], tl.int32, is_pure=False, pack=1
    )
    tl.store(y_ptr, value)


@triton.jit
def assembles_a_store(x_ptr, y_ptr):
    tl.inline_asm_elementwise(
        "st.global.u32 [$1], 1; mov.u32 $0, 0;",
        "=r,l",
        [y_ptr.to(tl.int64)],
        tl.int32,
        is_pure=False,
        pack=1,
    )
    tl.load(x_ptr)


@triton.jit
def takes_tuple(pair, y_ptr):
    tl.store(pair[1], tl.load(pair[0]))
    tl.store(y_ptr, 1.0)


@triton.jit
def describes(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, [n], [1], [BLOCK])
    target = tl.make_tensor_descriptor(y_ptr, [n], [1], [BLOCK])
    target.store([0], source.load([0]))


@triton.jit
def is_described(x, y):
    y.store([0, 0], x.load([0, 0]))


@triton.jit
def adds_up_described(x, y):
    y.atomic_add([0, 0], x.load([0, 0]))


@triton.jit
def optional(x_ptr, y_ptr, n):
    if x_ptr is not None:
        tl.store(y_ptr, tl.load(x_ptr))
    else:
        tl.store(y_ptr, n)


@triton.jit
def says(x_ptr, y_ptr):
    tl.device_print("{ %x_ptr of ", tl.load(x_ptr))
    tl.device_assert(tl.load(x_ptr) > 0, "} %y_ptr")
    tl.store(y_ptr, tl.sum(tl.cumsum(tl.load(x_ptr + tl.arange(0, 16)), 0), 0))
