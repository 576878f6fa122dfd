"""One config for a kernel, so that no test measures anything."""


def pin(monkeypatch, kernel, config):
    """Leave ``kernel`` this one config to choose from."""
    monkeypatch.setattr(kernel, "configs", [config])
