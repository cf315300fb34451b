"""The compiler half of the plugin. The simulator runs what the NVIDIA backend compiles, so it claims no target."""

from triton.backends.compiler import BaseBackend, GPUTarget


class SimulatorBackend(BaseBackend):

    @staticmethod
    def supports_target(target: GPUTarget):
        return False

    def hash(self):
        raise NotImplementedError(_MESSAGE)

    def parse_options(self, options):
        raise NotImplementedError(_MESSAGE)

    def add_stages(self, stages, options, language=None):
        raise NotImplementedError(_MESSAGE)

    def load_dialects(self, context):
        raise NotImplementedError(_MESSAGE)

    def get_module_map(self):
        raise NotImplementedError(_MESSAGE)


_MESSAGE = "the simulator compiles nothing: its targets are cuda targets, which the NVIDIA backend compiles"
