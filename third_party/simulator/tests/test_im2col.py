"""The im2col walk against the brute-force reference, and the limits of descriptors and instructions."""

import random
import types

import im2col_oracle as oracle
import pytest
import torch
from im2col_reference import sources
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor, TensorDescriptorIm2Col
from triton_simulator import SimulationError, tma

DTYPES = [
    torch.bfloat16, torch.float16, torch.float32, torch.int8, torch.uint8, torch.int16, torch.int32,
    torch.float8_e4m3fn, torch.uint16, torch.uint32
]


def random_tensor(shape, dtype, pitch):
    """A tensor of that shape whose pixels are ``pitch`` elements apart."""
    bits = torch.randint(0, 100, (*shape[:-1], pitch))
    return bits.to(dtype)[..., :shape[-1]]


def layout(block, dtype):
    return gl.NVMMASharedLayout(0, torch.empty(0, dtype=dtype).element_size() * 8, len(block))


@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_random_loads(rank, dtype):
    rng = random.Random(f"{rank} {dtype}")
    torch.manual_seed(rank)
    low, high = tma._CORNERS[rank]
    size = torch.empty(0, dtype=dtype).element_size()
    for _ in range(40):
        spatial = rank - 2
        shape = [rng.randint(1, 3), *(rng.randint(1, 9) for _ in range(spatial)), rng.randint(1, 40)]
        pitch = -(-shape[-1] * size // 16) * 16 // size
        x = random_tensor(shape, dtype, pitch)
        lower = [rng.randint(max(low, -5), 3) for _ in range(spatial)]
        upper = [rng.randint(max(low, l - e + 1), 4) for l, e in zip(lower, shape[1:-1])]
        steps = [rng.randint(1, 8) for _ in range(spatial)]
        start = [
            rng.randint(0, shape[0]), *(rng.randint(l, max(l, e - 1 + u)) for l, e, u in zip(lower, shape[1:-1], upper))
        ]
        channel = 16 // size * rng.randint(-1, shape[-1] * size // 16 + 1)
        offsets = [rng.randint(0, min(6, tma._OFFSETS[rank])) for _ in range(spatial)]
        block = [2**rng.randint(0, 8), 2**rng.randint(4, 6)]
        fill = "nan" if dtype.is_floating_point and size > 1 and rng.random() < 0.3 else "zero"
        host = TensorDescriptorIm2Col(x, shape, list(x.stride()), block, layout(block, dtype), fill,
                                      element_strides=[1, *steps,
                                                       1], pixel_box_lower_corner=lower, pixel_box_upper_corner=upper)
        found = tma.prepare(tma.Descriptor(host, block, "x"), [*start, channel], offsets, block, "a load")()
        expected = torch.zeros(block) if fill == "zero" else torch.full(block, float("nan"))
        for row, source in zip(expected, sources(shape, lower, upper, steps, start, offsets, block[0])):
            if source is not None:
                for c in range(max(channel, 0), min(channel + block[1], shape[-1])):
                    row[c - channel] = x[source][c].item()
        assert torch.equal(found.float().nan_to_num(nan=-1), expected.nan_to_num(nan=-1)), host


def im2col(rank=4, **changes):
    x = torch.zeros((1, *[8] * (rank - 2), 16), dtype=torch.float16)
    values = dict(base=x, shape=list(x.shape), strides=list(x.stride()), block_shape=[16, 16],
                  layout=layout([16, 16], x.dtype), element_strides=[1] * rank, pixel_box_lower_corner=[0] * (rank - 2),
                  pixel_box_upper_corner=[0] * (rank - 2))
    host = TensorDescriptorIm2Col(**values)
    for name, value in changes.items():  # past Triton's own checks, to meet those of the driver
        setattr(host, name, value)
    return tma.Descriptor(host, host.block_shape, "x")


@pytest.mark.parametrize("changes, message", [
    ({"element_strides": [1, 9, 1, 1]}, "element stride 9 is not in 1 to 8"),
    ({"element_strides": [1, 0, 1, 1]}, "element stride 0"),
    ({"pixel_box_lower_corner": [-129, 0]}, "corner -129 is not in -128 to 127"),
    ({"pixel_box_upper_corner": [0, 128]}, "corner 128 is not in -128 to 127"),
    ({"block_shape": [2048, 16]}, "2048 pixels in a block; expected 1 to 1024"),
    ({"block_shape": [16, 4]}, "rows of 8 bytes in a block; expected a multiple of 16"),
    ({"strides": [1024, 128, 20, 1]}, "stride 20 of dimension 2 is not a multiple of 16 bytes"),
    ({"strides": [1024, 128, 32, 1]}, "reaches past the tensor"),
    ({"shape": [1, 0, 8, 16]}, "extent 0 of dimension 1"),
    ({"pixel_box_lower_corner": [0, 8]}, "the box of base pixels is empty: dimension 2 has extent 8, lower corner 8"),
    ({"pixel_box_upper_corner": [-8, 0]}, "dimension 1 has extent 8, lower corner 0 and upper corner -8"),
    ({"base": torch.zeros(2000, dtype=torch.float16)[1:]}, "is not a multiple of 16"),
    ({"base": torch.zeros(1024, dtype=torch.float8_e5m2), "padding": "nan"}, "NaN fills no torch.float8_e5m2"),
])
def test_descriptor_limits(changes, message):
    with pytest.raises(SimulationError, match=message):
        im2col(**changes)


@pytest.mark.parametrize("rank, limit", [(3, 65535), (4, 255), (5, 31)])
def test_offset_limits(rank, limit):
    descriptor, coordinates = im2col(rank), [0] * rank
    tma.prepare(descriptor, coordinates, [limit] * (rank - 2), [16, 16], "a load")
    if limit < 65535:
        with pytest.raises(SimulationError, match=f"offset {limit + 1}; expected 0 to {limit}"):
            tma.prepare(descriptor, coordinates, [limit + 1] * (rank - 2), [16, 16], "a load")


@pytest.mark.parametrize("coordinates, message", [
    ([0, 0, 0, 4], "illegal instruction: the innermost coordinate 4 is at byte 8; expected a multiple of 16"),
    ([0, 0, -1, 0], "illegal instruction: the base pixel -1 in dimension 2 is not in its box, 0 to 7"),
    ([0, 8, 0, 0], "illegal instruction: the base pixel 8 in dimension 1 is not in its box, 0 to 7"),
])
def test_starts_that_stop_the_kernel(coordinates, message):
    tma.prepare(im2col(), [-3, 7, 7, 8], [0, 0], [16, 16], "a load")
    with pytest.raises(SimulationError, match=message):
        tma.prepare(im2col(), coordinates, [0, 0], [16, 16], "a load")


def test_the_step_of_images():
    """The element stride of the images is the step from one to the next."""
    x = torch.arange(5.0).repeat_interleave(2).reshape(5, 2, 1).expand(5, 2, 8).contiguous().half()
    host = TensorDescriptorIm2Col(x, list(x.shape), list(x.stride()), [8, 8], layout([8, 8], x.dtype),
                                  element_strides=[1, 1, 1], pixel_box_lower_corner=[0], pixel_box_upper_corner=[0])
    host.element_strides = [2, 1, 1]
    found = tma.prepare(tma.Descriptor(host, [8, 8], "x"), [0, 0, 0], [0], [8, 8], "a load")()
    assert found[:, 0].tolist() == [0, 0, 2, 2, 4, 4, 0, 0]


def test_mode_mismatches():
    x = torch.zeros((32, 16), dtype=torch.float16)
    tiled = tma.Descriptor(TensorDescriptor.from_tensor(x, [16, 16], layout([16, 16], x.dtype)), [16, 16], "x")
    with pytest.raises(SimulationError, match="im2col offsets with a tiled descriptor"):
        tma.prepare(tiled, [0, 0], [0, 0], [16, 16], "a load")
    with pytest.raises(SimulationError, match="3 coordinates and 2 offsets"):
        tma.prepare(im2col(), [0, 0, 0], [0, 0], [16, 16], "a load")
    with pytest.raises(SimulationError, match="a store through an im2col descriptor"):
        tma.prepare_store(im2col(), [0, 0, 0, 0], [16, 16], "a store")
    with pytest.raises(SimulationError,
                       match=r"a load: shared memory of shape \[8, 32\] for a descriptor whose block is"):
        tma.prepare(im2col(), [0, 0, 0, 0], [0, 0], [8, 32], "a load")
    with pytest.raises(SimulationError, match=r"a store: shared memory of shape \[32, 8\]"):
        tma.prepare_store(tiled, [0, 0], [32, 8], "a store")


def test_tiled_boxes():
    x = torch.arange(12 * 20, dtype=torch.int32).reshape(12, 20)
    host = TensorDescriptor.from_tensor(x, [8, 16], layout([8, 16], x.dtype))
    descriptor = tma.Descriptor(host, [8, 16], "x")
    for store in (tma.prepare, tma.prepare_store):
        arguments = ((), [8, 16]) if store is tma.prepare else ([8, 16], )
        with pytest.raises(SimulationError, match="innermost coordinate 6 is at byte 24; expected a multiple of 16"):
            store(descriptor, [0, 6], *arguments, "an access")
    for row, column in [(0, 0), (-3, -4), (8, 16), (11, 16), (12, 0), (-8, 0), (-100, 200)]:
        padded = torch.nn.functional.pad(x, (200, 300, 200, 200))
        expected = padded[200 + row:208 + row, 200 + column:216 + column]
        assert torch.equal(tma.prepare(descriptor, [row, column], (), [8, 16], "a load")(), expected)
        y = torch.zeros_like(x)
        host.base = y
        tma.prepare_store(tma.Descriptor(host, [8, 16], "y"), [row, column], [8, 16], "a store")(expected)
        mask = torch.zeros_like(padded)
        mask[200 + row:208 + row, 200 + column:216 + column] = 1
        assert torch.equal(y, x * mask[200:212, 200:220])


@pytest.mark.parametrize("im2col", [False, True])
def test_rounding_to_tf32(im2col):
    one, small = 1.0, 2.0**-11  # the spacing from 1 to 2 is 2 ** -10
    values = [
        one + small / 2, one + small, one + small * 1.5, -one - 3 * small, 3.0,
        float("inf"),
        float("-inf"),
        float("nan")
    ]
    rounded = [one, one, one + 2 * small, -one - 4 * small, 3.0, float("inf"), float("-inf"), float("nan")]
    x = torch.tensor(values).repeat(2, 4, 1)
    if im2col:
        host = TensorDescriptorIm2Col(x, [2, 4, 8], list(x.stride()), [8, 8], layout([8, 8], x.dtype), "zero", True,
                                      pixel_box_lower_corner=[0], pixel_box_upper_corner=[0])
        found = tma.prepare(tma.Descriptor(host, [8, 8], "x"), [0, 0, 0], [0], [8, 8], "a load")()
    else:
        x = x.reshape(8, 8)
        host = TensorDescriptor.from_tensor(x, [8, 8], layout([8, 8], x.dtype), round_f32_to_tf32=True)
        found = tma.prepare(tma.Descriptor(host, [8, 8], "x"), [0, 0], (), [8, 8], "a load")()
    assert torch.equal(found.nan_to_num(nan=-7), torch.tensor(rounded).repeat(8, 1).nan_to_num(nan=-7))


def simulated(case):
    """The simulator's answer to a case of the hardware oracle, in the oracle's form."""
    dtype, size, shift = getattr(torch, case["type"]), oracle.TYPES[case["type"]], case["shift"]
    span = sum(max(extent - 1, 0) * stride for extent, stride in zip(case["shape"], case["strides"])) + 1
    memory = torch.from_numpy(oracle.contents(case["seed"], shift + span * size))
    host = types.SimpleNamespace(base=memory[shift:].view(dtype), shape=case["shape"], strides=case["strides"],
                                 padding="nan" if case["nan"] else "zero", round_f32_to_tf32=False,
                                 element_strides=case["element_strides"], pixel_box_lower_corner=case["lower"],
                                 pixel_box_upper_corner=case["upper"])  # yapf: disable
    try:
        descriptor = tma.Descriptor(host, case["block"], "x")
    except SimulationError as error:
        return {"encoded": str(error)}
    try:
        block = tma.prepare(descriptor, case["coordinates"], case["offsets"], case["block"], "a load")()
    except SimulationError as error:
        return {"encoded": 0, "error": str(error)}
    memory = oracle.swizzled(block.contiguous().view(torch.uint8).numpy(), case["swizzle"])
    return {"encoded": 0, "arrived": 1, "bytes": memory.size, "overrun": 0, "block": memory.tobytes().hex()}


def test_the_cases_of_the_hardware_oracle():
    rng = random.Random(4)
    counts = {"refused": 0, "loaded": 0}
    for _ in range(500):
        case = oracle.draw(rng)
        if oracle.refusal(case) not in ("channels", "swizzle"):  # limits of a message, of which Triton makes several
            answer = simulated(case)
            assert oracle.disagreement(case, answer) is None, (case, answer)
            counts["refused" if answer["encoded"] else "loaded"] += 1
    assert counts["refused"] > 50 and counts["loaded"] > 300


def test_recorded_answers_of_hardware():
    record = oracle.read_record()
    if not record:
        pytest.skip(f"{oracle.RECORD.name} has not been recorded yet")
    for line in record:
        case, answer = line["case"], line["answer"]
        if oracle.refusal(case) not in ("channels", "swizzle"):
            found = simulated(case)
            assert bool(found["encoded"]) == bool(answer["encoded"]), line
            assert ("error" in found) == ("error" in answer), line
            if "block" in answer and not case["nan"]:
                assert found["block"] == answer["block"], line
            elif not answer["encoded"]:
                assert oracle.disagreement(case, found) is None, line
