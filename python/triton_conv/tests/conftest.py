import pytest
from triton_conv import functional, launch


def pytest_collection_modifyitems(items):
    target = launch.active_target()
    if target is None or target.backend != "cuda" or target.arch // 10 not in (9, 10):
        for item in items:
            if "test_geometry" not in str(item.path):
                item.add_marker(pytest.mark.skip(reason="needs a Hopper or data-center Blackwell GPU"))


@pytest.fixture(autouse=True)
def nothing_prepared():
    """A test that replaces a part must not meet what an earlier test prepared with another."""
    for prepared in (functional._plans, functional._quick_plans, launch._launches):
        prepared.clear()
    for decided in (launch.launches_together, launch.direct_arguments):
        decided.cache_clear()
