# SPDX-License-Identifier: Apache-2.0
"""What a plain TCP connection between two hosts of scripts/linked_hosts.sh carries when both send at once.

    mpirun -n 2 python3 bench/tcp_stream.py MIB

Every rank sends MIB to the other while it receives as much. Rank 0 prints the bits per second of one direction.
"""

import os
import socket
import sys
import threading
import time

ADDRESS = ("10.77.0.1", 7777)  # rank 0, host h1
PIECE = 1 << 20


def connect(rank):
    if rank == 0:
        with socket.create_server(ADDRESS) as server:
            return server.accept()[0]
    for _ in range(500):
        try:
            return socket.create_connection(ADDRESS)
        except ConnectionRefusedError:
            time.sleep(0.01)
    raise SystemExit(f"nobody listens at {ADDRESS}")


def receive(connection, count):
    buffer = bytearray(PIECE)
    while count > 0:
        received = connection.recv_into(buffer, min(count, PIECE))
        if received == 0:
            raise SystemExit("the other rank ended")
        count -= received


def exchange(connection, count):
    """Seconds until both have everything."""
    start = time.monotonic()
    receiver = threading.Thread(target=receive, args=(connection, count))
    receiver.start()
    piece = bytes(PIECE)
    for begin in range(0, count, PIECE):
        connection.sendall(piece[:count - begin])
    receiver.join()
    connection.sendall(b"!")
    receive(connection, 1)
    return time.monotonic() - start


def main():
    rank, count = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(sys.argv[1]) << 20
    with connect(rank) as connection:
        exchange(connection, 4 * PIECE)  # the connection is at full speed after this
        seconds = exchange(connection, count)
    if rank == 0:
        print(f"stream {8 * count / seconds:.4e} bit/s")


if __name__ == "__main__":
    main()
