"""A network with another host in it, for one command: two network namespaces that a cable joins.

Usage, as root of new network and mount namespaces (`unshare --net --mount`, for a plain user `--map-root-user`
too): python3 far_host.py HOSTS LOG COMMAND…

The command runs on the near host, whose own address is NEAR. The far host has the addresses FAR, public and
private ones, and answers HTTP on the ports of PORTS. Each request that reaches a server, on either host, is
one line of LOG: the address and port that it came to, and its path. The file HOSTS is the /etc/hosts of the
command.
"""

import ctypes
import fcntl
import http.server
import os
import socket
import socketserver
import struct
import subprocess
import sys
import threading

NEAR = [("192.0.2.1", 1), ("2600::1", 12)]
# The whole upper half of IPv4 and 2600::/12 are on this cable, so that no route is needed.
FAR = [
    ("203.0.112.80", 1),  # public
    ("203.0.113.80", 1),  # for documentation, so not public
    ("192.168.77.80", 1),  # private
    ("169.254.169.254", 1),  # metadata of a cloud
    ("168.63.129.16", 1),  # metadata of another
    ("2606:4700::80", 12),  # public
]
PORTS = [80, 443, 22, 25, 8080]

CLONE_NEWNET = 0x40000000
RTM_NEWLINK, RTM_NEWADDR = 16, 20
REQUEST_ACK_CREATE = 0x1 | 0x4 | 0x400
IFLA_IFNAME, IFLA_LINKINFO, IFLA_NET_NS_PID = 3, 18, 19
IFLA_INFO_KIND, IFLA_INFO_DATA, VETH_INFO_PEER = 1, 2, 1
IFA_ADDRESS, IFA_LOCAL, IFA_F_NODAD = 1, 2, 2
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


def attribute(kind, value):
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + bytes(-length % 4)


def ask_kernel(kind, body):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(body), kind, REQUEST_ACK_CREATE, 1, 0) + body)
        (error,) = struct.unpack_from("=i", kernel.recv(65536), 16)
        if error:
            raise OSError(-error, os.strerror(-error))


def lay_cable(near, far, far_pid):
    link = struct.pack("=BxHiII", 0, 0, 0, 0, 0)
    peer = link + attribute(IFLA_IFNAME, far.encode() + b"\0")
    peer += attribute(IFLA_NET_NS_PID, struct.pack("=I", far_pid))
    kind = attribute(IFLA_INFO_KIND, b"veth")
    data = attribute(IFLA_INFO_DATA, attribute(VETH_INFO_PEER, peer))
    name = attribute(IFLA_IFNAME, near.encode() + b"\0")
    ask_kernel(RTM_NEWLINK, link + name + attribute(IFLA_LINKINFO, kind + data))


def give_address(interface, address, prefix):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = socket.inet_pton(family, address)
    head = struct.pack("=BBBBI", family, prefix, IFA_F_NODAD, 0, socket.if_nametoindex(interface))
    ask_kernel(RTM_NEWADDR, head + attribute(IFA_LOCAL, packed) + attribute(IFA_ADDRESS, packed))


def switch_on(interface):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH22x", interface.encode(), 0)
        name, flags = struct.unpack_from("16sH", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH22x", name, flags | IFF_UP))


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True

    def server_bind(self):
        # No look-up of the own name, which HTTPServer would make.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "far", self.server_address[1]


def handler(host, log):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            address, port = self.connection.getsockname()[:2]
            address = address.removeprefix("::ffff:")
            os.write(log, f"{address} {port} {self.path}\n".encode())
            body = f"{host} {address} {self.path}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return Handler


def serve(host, log):
    for port in PORTS:
        # The unspecified address of IPv6 takes IPv4 as well.
        server = Server(("::", port), handler(host, log))
        threading.Thread(target=server.serve_forever, daemon=True).start()


def be_far_host(log, from_near, to_near):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    os.write(to_near, b"namespace")
    os.read(from_near, 1)
    switch_on("lo")
    switch_on("far0")
    for address, prefix in FAR:
        give_address("far0", address, prefix)
    serve("far", log)
    os.write(to_near, b"ready")
    # Until the near host is gone.
    os.read(from_near, 1)


def main():
    hosts, log_path, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    from_near, to_far = os.pipe()
    from_far, to_near = os.pipe()
    far = os.fork()
    if far == 0:
        os.close(to_far)
        os.close(from_far)
        try:
            be_far_host(log, from_near, to_near)
        finally:
            os._exit(0)
    os.close(from_near)
    os.close(to_near)
    if os.read(from_far, 9) != b"namespace":
        sys.exit("far_host: no network namespace for the far host")
    switch_on("lo")
    lay_cable("near0", "far0", far)
    switch_on("near0")
    for address, prefix in NEAR:
        give_address("near0", address, prefix)
    os.write(to_far, b".")
    if os.read(from_far, 5) != b"ready":
        sys.exit("far_host: the far host did not start")
    serve("near", log)
    status = subprocess.run(command).returncode
    sys.exit(status if status >= 0 else 128 - status)


main()
