"""Every CPU test launches onto the host-only driver and keeps its configs in memory."""

from __future__ import annotations

import pytest
from serving import any_service, served, sqlite_service  # noqa: F401  fixtures


@pytest.fixture(autouse=True)
def memory_store():
    """A store of its own for each test, so that none touches the user's directory.

    It takes no ``monkeypatch``, which would be undone after the settings are read again here, and
    a test's last LAUNCHKIT_* would stay in force after it.
    """
    from launchkit import settings
    from launchkit.dispatch.stores import use_store
    from launchkit.store import MemoryStore

    with pytest.MonkeyPatch.context() as patch:
        for name in (
            "DISABLE",
            "VERIFY",
            "STORE",
            "SERVICE",
            "SERVICE_TOKEN",
            "SERVICE_KEY",
            "SERVICE_TIMEOUT_MS",
            "SERVICE_LEASE_S",
            "MANIFEST",
            "INSTALL",
            "INSTALL_INCLUDE",
            "INSTALL_EXCLUDE",
            "REQUIRE_TUNED",
            "DEVICE_POLICY",
            "TOOLCHAIN_POLICY",
            "SAMPLES",
        ):
            patch.delenv(f"LAUNCHKIT_{name}", raising=False)
        settings.reload()
        store = MemoryStore()
        use_store(store)
        yield store
        use_store(None)
    settings.reload()


@pytest.fixture
def service():
    """A fake config service."""
    import fake_service  # after what it needs of an extra is known to be there

    with fake_service.running() as running:
        yield running


@pytest.fixture
def fresh_stats():
    """Counts of launches that are the test's own."""
    import launchkit

    launchkit.stats(reset=True)
    yield
    launchkit.stats(reset=True)


@pytest.fixture
def host():
    """Host-only mode with two fake devices; yields the module with nothing recorded yet."""
    from launchkit import hostonly

    with hostonly.activate(devices=2):
        hostonly.clear()
        yield hostonly


@pytest.fixture
def measuring(host, monkeypatch):
    """Host-only, but believed to execute: kernels given their own ``do_bench`` tune and store."""
    from launchkit.dispatch import triton_seam

    monkeypatch.setattr(triton_seam, "executes", lambda: True)
    return host


@pytest.fixture
def store(tmp_path):
    """A DirectoryStore whose directory does not exist yet."""
    from launchkit.store import DirectoryStore

    return DirectoryStore(tmp_path / "not" / "yet" / "there")


def use_core(kind, monkeypatch):
    """Give kernels that are launched from now on the C core, or its Python twin."""
    from launchkit import settings
    from launchkit.dispatch import launcher  # noqa: F401 - loads the extension
    from launchkit.dispatch.native import extension

    monkeypatch.setenv("LAUNCHKIT_NATIVE", "1" if kind == "c" else "0")
    settings.reload()
    if kind == "c" and extension.active() is None:
        pytest.skip(f"no C core: {extension.obstacle() or 'switched off at import'}")


@pytest.fixture(params=["c", "python"])
def each_core(request, memory_store, monkeypatch):
    """Runs a test with each of the two cores."""
    use_core(request.param, monkeypatch)
    return request.param


@pytest.fixture
def python_core(memory_store, monkeypatch):
    """Runs a test with the Python core."""
    use_core("python", monkeypatch)


@pytest.fixture
def c_core(memory_store, monkeypatch):
    """Runs a test with the C core."""
    use_core("c", monkeypatch)


@pytest.fixture(params=["libtorch", "dlpack", "python core"])
def reader(request, memory_store, monkeypatch):
    """Runs a test with each way in which a core reads tensors."""
    use_core("python" if request.param == "python core" else "c", monkeypatch)
    if request.param == "python core":
        yield request.param
        return
    from launchkit.dispatch.native import extension

    native = extension.active()
    found = extension.read_tensors_directly(native)
    if request.param == "dlpack":
        native.read_tensors_directly(())
    elif not found:
        pytest.skip("this torch does not tell where the tensor stands in its Python object")
    yield request.param
    extension.read_tensors_directly(native)
