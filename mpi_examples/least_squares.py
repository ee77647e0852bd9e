#!/usr/bin/env python3
"""least_squares -- mpi4py: rows of a table are spread over the ranks, and gradient descent finds the weights that
explain a column. Every step adds the gradients of all ranks by an Allreduce.

    mpirun -n 2 --mca coll_loom_enable 1 python3 least_squares.py [WEIGHTS] [STEPS]

It runs by turns on a communicator as Open MPI makes it and on one without loom, and says how long each took. Exit code
1: the weights are wrong, or differ between the ranks.
"""
import sys
import time

import numpy as np
from mpi4py import MPI


def without_loom(comm):
    """The same ranks; Open MPI chooses as if loom were not there."""
    info = MPI.Info.Create()
    info.Set("ompi_comm_coll_preference", "^loom")
    duplicate = comm.Dup_with_info(info)
    info.Free()
    return duplicate


def descend(comm, rows, targets, steps):
    """The weights after so many steps; seconds of a step, and those of its Allreduce."""
    weights = np.zeros(rows.shape[1])
    gradient, total = np.empty_like(weights), np.empty_like(weights)
    all_rows = comm.allreduce(len(rows))
    in_allreduce = 0
    comm.Barrier()
    began = time.perf_counter()
    for _ in range(steps):
        np.dot(rows.T, rows @ weights - targets, out=gradient)
        before = time.perf_counter()
        comm.Allreduce(gradient, total)
        in_allreduce += time.perf_counter() - before
        weights -= total / all_rows
    return weights, np.array([time.perf_counter() - began, in_allreduce]) / steps


def main():
    comm = MPI.COMM_WORLD
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    true_weights = np.random.default_rng(0).standard_normal(count)
    # Orthogonal columns of length sqrt(rows): one step would do if there were no noise of rounding.
    rows = np.linalg.qr(np.random.default_rng(1 + comm.rank).standard_normal((2 * count, count)))[0] * np.sqrt(2 * count)
    targets = rows @ true_weights

    comms = [comm, without_loom(comm)]
    seconds, wrong = [[], []], 0
    for _ in range(5):
        for which in (0, 1):
            weights, taken = descend(comms[which], rows, targets, steps)
            seconds[which].append(taken)
            wrong = max(wrong, np.abs(weights - true_weights).max())
    comms[1].Free()
    differ = np.abs(weights - comm.bcast(weights)).max()
    wrong, differ = comm.allreduce(wrong, MPI.MAX), comm.allreduce(differ, MPI.MAX)
    if comm.rank == 0:
        for which, name in enumerate(("as Open MPI chooses", "without loom")):
            step, allreduce = np.median(seconds[which], axis=0) * 1e6
            print(f"{comm.size} ranks, {count} weights, {name}: a step takes {step:.1f} us, {allreduce:.1f} us of them in Allreduce")
        print(f"largest error {wrong:.1e}, largest difference between ranks {differ:.1e}")
    return 1 if wrong > 1e-9 or differ != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
