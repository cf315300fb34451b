"""The pitfalls of the documentation, each a kernel or a calculation that shows it. They run on a GPU or in the simulator."""

import torch
import triton
from im2col_reference import sources
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col


def device():
    return triton.runtime.driver.active.get_active_torch_device()


def make_descriptors(x, block, lower, upper):
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.float32)
    out = torch.full(block, -1.0, device=x.device)
    x_desc = TensorDescriptorIm2Col.from_tensor(x, block, layout, pixel_box_lower_corner=lower,
                                                pixel_box_upper_corner=upper)
    return x_desc, TensorDescriptor.from_tensor(out, block, layout), out


def numbered(*shape):
    """Pixels numbered from 1, in every channel."""
    return torch.arange(1.0, 1 + torch.Size(shape[:-1]).numel(),
                        device=device()).repeat_interleave(shape[-1]).reshape(shape)


# Corners are not the padding.


def rows_of_an_image(upper):
    """A 5x5 filter over an image of 6x6 with padding 1 has 4x4 outputs. How many base positions does the walk visit?"""
    shape, lower, visited = (2, 6, 6, 8), (-1, -1), 0
    for row in sources(shape, lower, upper, (1, 1), (0, -1, -1), (1, 1), 200):
        if row is None or row[0] > 0:
            break
        visited += 1
    return visited


def corners_are_not_the_padding():
    right = rows_of_an_image(upper=(1 - 4, 1 - 4))  # padding - (taps - 1) * dilation
    wrong = rows_of_an_image(upper=(-1, -1))  # -padding, which is right for a 3x3 filter
    return right, wrong


# Offsets are not negative.


@gluon.jit
def tap_kernel(x_desc, out_desc, h, w, r, s):
    block = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_shape, x_desc.layout)
    bar = mbarrier.allocate_mbarrier()
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x_desc.nbytes_per_cta)
    # An argument that is 1 is a constexpr, hence to_tensor. Offsets are 16 bits and unsigned.
    offsets = [gl.to_tensor(r).to(gl.int16), gl.to_tensor(s).to(gl.int16)]
    tma.async_load_im2col(x_desc, [0, h, w, 0], offsets, bar, block)
    mbarrier.wait(bar, 0)
    mbarrier.invalidate(bar)
    tma.async_store(out_desc, [0, 0], block)
    tma.store_wait(0)


def a_tap_before_the_base():
    """Read the pixel above and left of each: the base goes one back, by the corner and the start; the offset stays 0."""
    x_desc, out_desc, out = make_descriptors(numbered(1, 4, 4, 8), [16, 8], lower=[-1, -1], upper=[-1, -1])
    tap_kernel[(1, )](x_desc, out_desc, -1, -1, 0, 0, num_warps=1)
    return out[:, 0].tolist()


# The barrier always gets the whole block.


def a_block_past_the_end():
    """16 rows from the last pixel of the last image: one row is read, and the bytes of 16 arrive."""
    x_desc, out_desc, out = make_descriptors(numbered(1, 4, 4, 8), [16, 8], lower=[0, 0], upper=[0, 0])
    tap_kernel[(1, )](x_desc, out_desc, 3, 3, 0, 0, num_warps=1)
    return out[:, 0].tolist()


# A row of weights past a tap's channels must be zero.


def a_flat_weight_matrix():
    """C = 12 in blocks of 8: the second block of tap 0 runs into tap 1, whose weight is infinite."""
    x = torch.ones(1, 12)
    w = torch.ones(2, 12)  # taps by channels of one output channel
    w[1] = float("inf")
    x_block = torch.nn.functional.pad(x[:, 8:16], (0, 4))  # filled past channel 12
    flat = w.flatten()[8:16]  # of a matrix [taps * C]
    separate = torch.nn.functional.pad(w[0, 8:16], (0, 4))  # of a tensor [taps, C], filled as well
    return (x_block @ flat).item(), (x_block @ separate).item()


# Channels come in 16 bytes.


def three_channels():
    """The strides of a tensor for TMA are multiples of 16 bytes: 3 channels of 32 bits need a pitch of 4."""
    layout = gl.NVMMASharedLayout.get_default_for([16, 4], gl.float32)
    corners = dict(pixel_box_lower_corner=[0, 0], pixel_box_upper_corner=[0, 0])
    tight, padded = torch.ones(1, 4, 4, 3, device=device()), torch.ones(1, 4, 4, 4, device=device())[..., :3]
    TensorDescriptorIm2Col.from_tensor(padded, [16, 4], layout, **corners)
    try:
        TensorDescriptorIm2Col.from_tensor(tight, [16, 4], layout, **corners)
    except AssertionError as error:
        return str(error)
