"""The clients of ``launchkit bench service``: what they count is what was answered."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from launchkit.benchmarks.service.requests import Ask, Plan, drive, request
from launchkit.errors import UsageError


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server that gives each request the next answer, the last one for ever; b"" closes."""
    asked: list[bytes] = []
    given = iter(answers)
    lock = threading.Lock()

    def talk(connection: socket.socket) -> None:
        with connection:
            connection.settimeout(20)
            while data := connection.recv(65536):
                with lock:
                    asked.append(data)
                    answer = next(given, answers[-1])
                if not answer:
                    return
                connection.sendall(answer)

    def accept() -> None:
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            threads.append(threading.Thread(target=talk, args=(connection,), daemon=True))
            threads[-1].start()

    threads: list[threading.Thread] = []
    listener = socket.create_server(("127.0.0.1", 0))
    threads.append(threading.Thread(target=accept))
    threads[0].start()
    try:
        yield listener.getsockname()[1], asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()


def answer(status: int, body: bytes = b"") -> bytes:
    return f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


GET = Ask(request("GET", "/x"))
ONCE = Plan(lambda rng: GET, clients=1, seconds=1e-9)


def test_every_answer_has_a_time_and_a_status() -> None:
    with answering(answer(200, b"abc")) as (port, asked):
        seen = drive([port], Plan(lambda rng: GET, clients=3, seconds=0.2))
    assert len(seen.times_us) == seen.statuses[200] == len(asked) >= 3
    assert (seen.errors, seen.wrong) == (0, [])
    assert set(asked) == {b"GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"}


@pytest.mark.parametrize(
    ("given", "status"), [(answer(500, b"oh"), 500), (answer(404), 404), (b"", 0)]
)
def test_what_is_not_the_right_answer_is_an_error(given: bytes, status: int) -> None:
    with answering(given) as (port, _):
        seen = drive([port], ONCE)
    assert (seen.errors, dict(seen.statuses), len(seen.wrong)) == (1, {status: 1}, 1)


def test_wrong_body_is_an_error_though_the_status_is_right() -> None:
    asks = Ask(GET.data, check=lambda body: body == b"right")
    with answering(answer(200, b"wrong")) as (port, _):
        seen = drive([port], Plan(lambda rng: asks, clients=1, seconds=1e-9))
    assert (seen.errors, seen.checked, seen.statuses[200]) == (1, 1, 1)
    assert "wrong" in seen.wrong[0]


def test_no_answer_in_time_is_an_error() -> None:
    with answering(b"HTTP/1.1 200 x\r\n") as (port, _):
        seen = drive([port], Plan(lambda rng: GET, clients=1, seconds=1e-9, deadline_s=0.05))
    assert (seen.errors, dict(seen.statuses)) == (1, {0: 1})


def test_connection_closed_between_two_requests_is_no_error() -> None:
    with answering(answer(200), b"", answer(200)) as (port, asked):
        seen = drive([port], Plan(lambda rng: GET, clients=1, seconds=0.05))
    assert seen.errors == 0
    assert len(asked) == seen.statuses[200] + 1


def test_paced_clients_make_the_requests_that_were_told() -> None:
    with answering(answer(200)) as (port, asked):
        drive([port], Plan(lambda rng: GET, clients=5, seconds=0.5, per_s=50))
    assert 20 <= len(asked) <= 30


def test_clients_are_shared_out_evenly() -> None:
    with answering(answer(200)) as (one, asked_one), answering(answer(200)) as (two, asked_two):
        drive([one, two], Plan(lambda rng: GET, clients=6, seconds=1e-9))
    assert (len(asked_one), len(asked_two)) == (3, 3)


def test_answer_in_chunks_is_refused() -> None:
    chunked = b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with answering(chunked) as (port, _), pytest.raises(UsageError, match="chunks"):
        drive([port], ONCE)


def test_a_request_has_its_token_its_headers_and_its_length() -> None:
    made = request("PUT", "/y", "lk_1", b"{}", If_Match='"a"')
    head, _, body = made.partition(b"\r\n\r\n")
    assert body == b"{}"
    assert head.split(b"\r\n") == [
        b"PUT /y HTTP/1.1", b"Host: 127.0.0.1", b"Authorization: Bearer lk_1",
        b"Content-Length: 2", b"Content-Type: application/json", b'If-Match: "a"',
    ]  # fmt: skip


def test_quantiles_are_those_of_the_times() -> None:
    with answering(answer(200)) as (port, _):
        seen = drive([port], ONCE)
    seen.times_us[:] = type(seen.times_us)("d", [1000.0 * n for n in range(100, 0, -1)])
    row = seen.row()
    assert (row["p50_ms"], row["p99_ms"], row["max_ms"]) == (51.0, 100.0, 100.0)
