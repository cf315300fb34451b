"""A producer and a consumer over a ring of two buffers, with a mistake that hangs on a GPU."""

import torch
import triton_simulator
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor


@gluon.jit
def produce(x_desc, ring, full, empty, blocks):
    for i in range(blocks):
        slot = i % 2
        mbarrier.wait(empty.index(slot), i // 2 & 1)  # the mistake: the first round must not wait, so ... & 1 ^ 1
        mbarrier.expect(full.index(slot), x_desc.nbytes_per_cta)
        tma.async_load(x_desc, [i * x_desc.block_shape[0], 0], full.index(slot), ring.index(slot))


@gluon.jit
def consume(y_desc, ring, full, empty, blocks):
    for i in range(blocks):
        slot = i % 2
        mbarrier.wait(full.index(slot), i // 2 & 1)
        tma.async_store(y_desc, [i * y_desc.block_shape[0], 0], ring.index(slot))
        tma.store_wait(0)
        mbarrier.arrive(empty.index(slot))


@gluon.jit
def copy_kernel(x_desc, y_desc, blocks):
    ring = gl.allocate_shared_memory(x_desc.dtype, [2] + x_desc.block_shape, x_desc.layout)
    full = mbarrier.allocate_mbarrier(batch=2)
    empty = mbarrier.allocate_mbarrier(batch=2)
    for i in gl.static_range(2):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    gl.warp_specialize([(consume, (y_desc, ring, full, empty, blocks)), (produce, (x_desc, ring, full, empty, blocks))],
                       [1], [24])


def main():
    x, y = torch.randn(64, 64), torch.zeros(64, 64)
    layout = gl.NVMMASharedLayout.get_default_for([16, 64], gl.float32)
    x_desc, y_desc = (TensorDescriptor.from_tensor(tensor, [16, 64], layout) for tensor in (x, y))
    with triton_simulator.activate("sm_90"):
        copy_kernel[(1, )](x_desc, y_desc, 4, num_warps=4)


if __name__ == "__main__":
    main()
