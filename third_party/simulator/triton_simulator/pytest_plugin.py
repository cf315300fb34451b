"""pytest --simulate sm_90: run the tests of kernels on a simulated GPU."""


def pytest_addoption(parser):
    group = parser.getgroup("triton_simulator")
    group.addoption("--simulate", metavar="ARCH", help="run kernels on a simulated sm_90, sm_100 or sm_103")
    group.addoption("--simulate-seed", type=int, default=0, help="seed of the simulator's scheduler")
    group.addoption("--simulate-schedules", type=int, default=1, help="interleavings to run of each launch")


def pytest_configure(config):
    arch = config.getoption("--simulate")
    if arch:
        from . import activate
        activate(arch, config.getoption("--simulate-seed"), config.getoption("--simulate-schedules"))


def pytest_report_header(config):
    arch = config.getoption("--simulate")
    return f"kernels run on a simulated {arch}" if arch else None
