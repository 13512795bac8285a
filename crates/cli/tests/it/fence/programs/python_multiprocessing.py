"""Shares work between processes, whose queue is guarded by semaphores in shared memory."""

import multiprocessing


def square(number):
    return number * number


if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        print(pool.map(square, [1, 2, 3]))
