"""Tries the network, and prints one line for each argument: the argument and what came of it.

  tcp:HOST:PORT        the body of an HTTP answer, or the error of connecting
  udp:HOST:PORT        `sent`, or the error
  pair                 what went through a socket pair
  unix                 `made`, or the error of making a unix socket
  serve:PORT           starts a server on that port, on 127.0.0.1, that answers `inside`
  hold                 says so, and waits until stdin ends
  proxy:REQUEST LINE   the status with which the proxy answers
  dns:NAME             the code of the answer to a query for IPv4 addresses, and the addresses
"""

import errno
import os
import socket
import struct
import sys
import threading

PROXY = ("127.0.0.1", 3128)
RESOLVER = ("127.0.0.53", 53)
# Ends what hangs; a refusal comes at once.
TIMEOUT = 60


def exchange(connection, request):
    connection.sendall(request)
    answer = b""
    while piece := connection.recv(65536):
        answer += piece
    return answer


def tcp(target):
    host, port = target.rsplit(":", 1)
    with socket.create_connection((host, int(port)), TIMEOUT) as connection:
        request = f"GET / HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n"
        return exchange(connection, request.encode()).partition(b"\r\n\r\n")[2].decode()


def udp(target):
    host, port = target.rsplit(":", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"datagram", (host, int(port)))
    return "sent"


def pair(_):
    left, right = socket.socketpair()
    left.sendall(b"through the pair")
    return right.recv(100).decode()


def unix(_):
    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).close()
    return "made"


def serve(port):
    listener = socket.create_server(("127.0.0.1", int(port)))

    def answer():
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\ninside")

    threading.Thread(target=answer, daemon=True).start()
    return "started"


def proxy(request_line):
    with socket.create_connection(PROXY, TIMEOUT) as connection:
        host = request_line.split()[1].removeprefix("http://").split("/")[0]
        request = f"{request_line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        return exchange(connection, request.encode()).split()[1].decode()


def dns(name):
    labels = b"".join(bytes([len(label)]) + label for label in name.encode().split(b"."))
    query = struct.pack("!6H", 77, 0x0100, 1, 0, 0, 0) + labels + struct.pack("!BHH", 0, 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as resolver:
        resolver.settimeout(TIMEOUT)
        resolver.connect(RESOLVER)
        resolver.send(query)
        answer = resolver.recv(4096)
    _, flags, _, answers, _, _ = struct.unpack_from("!6H", answer)
    # Each answer ends with an address, after a compressed name and ten bytes.
    addresses = [socket.inet_ntoa(answer[end - 4 : end]) for end in range(len(query) + 16, len(answer) + 1, 16)]
    assert len(addresses) == answers, answer
    return " ".join([f"code {flags & 15}", *addresses])


def hold(_):
    print("hold", flush=True)
    sys.stdin.read()
    return "released"


PROBES = {probe.__name__: probe for probe in (tcp, udp, pair, unix, serve, proxy, dns, hold)}

for argument in sys.argv[1:]:
    kind, _, target = argument.partition(":")
    try:
        outcome = PROBES[kind](target)
    except OSError as error:
        outcome = errno.errorcode.get(error.errno, repr(error))
    print(argument, "->", outcome, flush=True)
