"""The compiler's passes between TTGIR and LLVM that decide what the simulator must know.

They place the buffers in shared and tensor memory, divide the registers among the partitions, and insert the proxy
fences that the compiler adds by itself. Control flow stays structured: the passes that take it apart are left out.
"""

import tempfile

from triton._C.libtriton import ir, nvidia, passes

from .errors import SimulationError


def lower(ttgir, capability):
    context = ir.context()
    ir.load_dialects(context)
    nvidia.load_dialects(context)
    with tempfile.NamedTemporaryFile("w", suffix=".ttgir") as file:
        file.write(ttgir)
        file.flush()
        module = ir.parse_mlir_module(file.name, context)
    manager = ir.pass_manager(context)
    allocate_warp_groups = passes.ttgpuir.add_allocate_warp_groups
    try:
        allocate_warp_groups(manager, False)
    except TypeError:  # Triton 3.8 has no such argument
        allocate_warp_groups(manager)
    nvidia.passes.ttgpuir.add_allocate_shared_memory_nv(manager, capability, 86)
    nvidia.passes.ttnvgpuir.add_allocate_tensor_memory(manager)
    nvidia.passes.ttnvgpuir.add_proxy_fence_insertion(manager, capability)
    try:
        manager.run(module, "simulator")
    except RuntimeError as error:
        raise SimulationError(f"the compiler's allocation passes failed: {error}") from error
    return module.str()
