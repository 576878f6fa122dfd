"""A service over https: its certificate is checked before a token is shown."""

from __future__ import annotations

import shutil
import ssl
import subprocess

import fake_service
import pytest
from service_clients import client, reason
from stored import RECORD, get

from launchkit.service.client import transport

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """(certificate, key) of 127.0.0.1, signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    paths = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=a test", "-addext", "subjectAltName=IP:127.0.0.1",
         "-out", str(paths[0]), "-keyout", str(paths[1])],
        check=True, capture_output=True,
    )  # fmt: skip
    return paths


class SecureService(fake_service.FakeService):
    """The fake service behind TLS."""

    def __init__(self, certificate) -> None:
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(*map(str, certificate))
        super().__init__()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/team"

    def _connected(self, connection) -> None:
        try:
            secured = self._tls.wrap_socket(connection, server_side=True)
        except OSError:  # the client did not trust it
            connection.close()
            return
        super()._connected(secured)


@pytest.fixture
def service(certificate):
    made = SecureService(certificate)
    yield made
    made.close()


@pytest.fixture
def closing():
    made = []
    yield made
    for each in made:
        each.close()


def test_service_with_a_certificate_of_a_known_authority_is_asked(
    service, certificate, monkeypatch, closing
):
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    monkeypatch.setattr(transport.ssl, "create_default_context", lambda: trusting)
    service.hold(RECORD)
    closing.append(client(service))
    assert get(closing[0], RECORD) == RECORD


def test_service_with_an_unknown_certificate_is_a_miss_and_is_shown_no_token(service, closing):
    service.hold(RECORD)
    closing.append(client(service))
    assert reason(closing[0]) == "unreachable"
    assert service.asked == []


def test_server_that_speaks_no_tls_is_a_miss_and_is_shown_no_token(closing):
    with fake_service.running() as plain:
        closing.append(client(plain.url.replace("http:", "https:"), timeout_s=0.5))
        assert reason(closing[0]) in ("unreachable", "slow")
        assert not any("authorization" in each.headers for each in plain.asked)
