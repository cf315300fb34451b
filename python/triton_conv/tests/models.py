"""Small models of the kinds that convolutions are used in, with random weights: the block plans are those of the originals."""

import torch
from torch import nn


class Bottleneck(nn.Module):
    """ResNet-50 v1.5: 1x1, 3x3 with the stride, 1x1, and a shortcut."""

    def __init__(self, channels, width, stride):
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                  nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                  nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out))
        self.shortcut = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet(blocks=(3, 4, 6, 3)):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, count in enumerate(blocks):
        for block in range(count):
            layers.append(Bottleneck(channels, 64 << stage, 2 if stage and not block else 1))
            channels = 256 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


class ResBlock(nn.Module):

    def __init__(self, channels, out):
        super().__init__()
        self.body = nn.Sequential(nn.GroupNorm(32, channels), nn.SiLU(), nn.Conv2d(channels, out, 3, padding=1),
                                  nn.GroupNorm(32, out), nn.SiLU(), nn.Conv2d(out, out, 3, padding=1))
        self.shortcut = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x):
        return self.body(x) + self.shortcut(x)


class UNet(nn.Module):
    """SDXL's plan of channels: 320, 640, 1280, with skips."""

    def __init__(self, widths=(320, 640, 1280)):
        super().__init__()
        self.first = nn.Conv2d(4, widths[0], 3, padding=1)
        self.down, self.halve, self.up = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        channels = widths[0]
        for width in widths:
            self.down.append(ResBlock(channels, width))
            self.halve.append(nn.Conv2d(width, width, 3, 2, 1) if width != widths[-1] else nn.Identity())
            channels = width
        for width in reversed(widths):
            self.up.append(ResBlock(channels + width, width))
            channels = width
        self.last = nn.Sequential(nn.GroupNorm(32, channels), nn.SiLU(), nn.Conv2d(channels, 4, 3, padding=1))

    def forward(self, x):
        x = self.first(x)
        skips = []
        for block, halve in zip(self.down, self.halve):
            x = block(x)
            skips.append(x)
            x = halve(x)
        for block, skip in zip(self.up, reversed(skips)):
            if x.shape[-1] != skip.shape[-1]:
                x = nn.functional.interpolate(x, scale_factor=2.0)
            x = block(torch.cat([x, skip], dim=1))
        return self.last(x)


class CausalConv3d(nn.Conv3d):
    """Padding in time before the first frame only, as video decoders have it; ``convolve`` may be exchanged."""

    def __init__(self, channels, out):
        super().__init__(channels, out, 3, padding=(0, 1, 1))
        self.convolve = lambda x, w, bias: nn.functional.conv3d(nn.functional.pad(x, (0, 0, 0, 0, 2, 0)), w, bias,
                                                                padding=(0, 1, 1))

    def forward(self, x):
        return self.convolve(x, self.weight, self.bias)


def video_decoder(widths=(64, 32, 16)):
    layers = [CausalConv3d(8, widths[0])]
    for width, out in zip(widths, (*widths[1:], widths[-1])):
        layers += [nn.GroupNorm(8, width), nn.SiLU(), CausalConv3d(width, out), nn.Upsample(scale_factor=(1, 2, 2))]
    return nn.Sequential(*layers, CausalConv3d(widths[-1], 3))
