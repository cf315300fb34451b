"""What the documentation of triton_conv shows; it runs on a GPU, or in the simulator."""

import torch
import triton
import triton_conv

device = triton.runtime.driver.active.get_active_torch_device()
x = torch.randn(2, 64, 14, 14, dtype=torch.bfloat16, device=device).to(memory_format=torch.channels_last)
w = torch.randn(128, 64, 3, 3, dtype=torch.bfloat16, device=device).to(memory_format=torch.channels_last)
bias = torch.randn(128, dtype=torch.bfloat16, device=device)
shortcut = torch.randn(2, 128, 14, 14, dtype=torch.bfloat16, device=device).to(memory_format=torch.channels_last)

# PyTorch's arguments; what follows the product is part of the kernel.
y = triton_conv.conv2d(x, w, bias, padding=1, residual=shortcut, activation="relu")

# Padding may differ before and after: causal in the first dimension, without a padded copy.
z = triton_conv.conv2d(x, w, padding=((2, 0), (1, 1)))

# A whole model: parameters stay the same objects.
model = torch.nn.Sequential(torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.ConvTranspose2d(64, 32, 2))
model = model.to(device, torch.bfloat16, memory_format=torch.channels_last)
print(triton_conv.nn.convert(model))
with torch.inference_mode():
    model(x)
