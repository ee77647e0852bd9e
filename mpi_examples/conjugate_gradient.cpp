// conjugate_gradient -- solves Poisson's equation in a box by conjugate gradients, as many programs do:
// planes of the grid are spread over the ranks, neighbours exchange halos, and every iteration has two dot
// products, each an MPI_Allreduce of 8 bytes: the latency of small allreduces decides how far this scales.
//
//   mpirun -n 4 --mca coll_loom_enable 1 conjugate_gradient --grid 64
//
// The right-hand side is made from a known solution, so that the result can be checked point by point. Exit
// codes: 0 solved; 1 not converged or wrong; 2 bad arguments.

#include <fmt/format.h>
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <vector>

#include "mpi_examples/support/loom_pvars.hpp"

namespace {

/// This rank's planes of an n x n x n grid. Ranks beyond the n-th have none.
struct Slab {
  int n, first, planes;
  int below, above;  // neighbouring ranks, or MPI_PROC_NULL

  Slab(int grid, int rank, int ranks) : n(grid) {
    const int share = n / ranks;
    const int larger = n % ranks;  // the first ranks take one plane more
    planes = share + (rank < larger ? 1 : 0);
    first = rank * share + std::min(rank, larger);
    below = planes > 0 && first > 0 ? rank - 1 : MPI_PROC_NULL;
    above = planes > 0 && first + planes < n ? rank + 1 : MPI_PROC_NULL;
  }
  std::size_t plane_points() const { return static_cast<std::size_t>(n) * static_cast<std::size_t>(n); }
  std::size_t points() const { return static_cast<std::size_t>(planes) * plane_points(); }
};

/// Values on a slab with one halo plane on either side; outside the box they are zero.
class Field {
 public:
  explicit Field(const Slab& slab) : slab_(slab), values_(slab.points() + 2 * slab.plane_points(), 0.0) {}

  double* begin() { return values_.data() + slab_.plane_points(); }
  const double* begin() const { return values_.data() + slab_.plane_points(); }
  double* end() { return begin() + slab_.points(); }
  const double* end() const { return begin() + slab_.points(); }

  void exchange_halos() {
    const int count = static_cast<int>(slab_.plane_points());
    double* lowest = begin();
    double* highest = end() - count;
    MPI_Sendrecv(lowest, count, MPI_DOUBLE, slab_.below, 0, end(), count, MPI_DOUBLE, slab_.above, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(highest, count, MPI_DOUBLE, slab_.above, 1, lowest - count, count, MPI_DOUBLE, slab_.below,
                 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }

 private:
  const Slab& slab_;
  std::vector<double> values_;
};

/// out = A in: six times each point less its six neighbours.
void apply_laplacian(const Slab& slab, Field& in, Field& out) {
  in.exchange_halos();
  const int n = slab.n;
  const auto row = static_cast<std::ptrdiff_t>(n);
  const auto plane = static_cast<std::ptrdiff_t>(slab.plane_points());
  for (int z = 0; z < slab.planes; ++z) {
    for (int y = 0; y < n; ++y) {
      const double* p = in.begin() + z * plane + y * row;
      double* result = out.begin() + z * plane + y * row;
      for (int x = 0; x < n; ++x) {
        const double west = x > 0 ? p[x - 1] : 0;
        const double east = x + 1 < n ? p[x + 1] : 0;
        const double south = y > 0 ? p[x - row] : 0;
        const double north = y + 1 < n ? p[x + row] : 0;
        result[x] = 6 * p[x] - west - east - south - north - p[x - plane] - p[x + plane];
      }
    }
  }
}

double dot(const Field& a, const Field& b) {
  double sum = 0;
  for (const double *x = a.begin(), *y = b.begin(); x != a.end(); ++x, ++y) sum += *x * *y;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}

/// y = a x + b y
void combine(double a, const Field& x, double b, Field& y) {
  const double* from = x.begin();
  for (double* to = y.begin(); to != y.end(); ++to, ++from) *to = a * *from + b * *to;
}

/// Zero on the box's faces, asymmetric inside: a smoother choice could be an eigenvector, solved in one
/// iteration.
Field known_solution(const Slab& slab) {
  Field u(slab);
  const auto bump = [&](int i) {
    const double t = (i + 1.0) / (slab.n + 1.0);
    return t * (1 - t) * std::exp(2 * t);
  };
  double* point = u.begin();
  for (int z = 0; z < slab.planes; ++z) {
    for (int y = 0; y < slab.n; ++y) {
      for (int x = 0; x < slab.n; ++x) *point++ = bump(x) * bump(y) * bump(slab.first + z);
    }
  }
  return u;
}

double largest_difference(const Field& a, const Field& b) {
  double largest = 0;
  for (const double *x = a.begin(), *y = b.begin(); x != a.end(); ++x, ++y) {
    largest = std::max(largest, std::abs(*x - *y));
  }
  MPI_Allreduce(MPI_IN_PLACE, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return largest;
}

/// Solves A x = b from x = 0 until the residual has shrunk by `tolerance`; returns the iterations.
int solve(const Slab& slab, const Field& b, Field& x, double tolerance, int most_iterations) {
  Field residual = b;
  Field direction = b;
  Field applied(slab);
  double residual_squared = dot(residual, residual);
  const double goal = tolerance * tolerance * residual_squared;
  int iteration = 0;
  while (residual_squared > goal && iteration < most_iterations) {
    apply_laplacian(slab, direction, applied);
    const double alpha = residual_squared / dot(direction, applied);
    combine(alpha, direction, 1, x);
    combine(-alpha, applied, 1, residual);
    const double next = dot(residual, residual);
    combine(1, residual, next / residual_squared, direction);
    residual_squared = next;
    ++iteration;
  }
  return iteration;
}

int run(int grid, double tolerance, int rank, int ranks) {
  const Slab slab(grid, rank, ranks);
  Field known = known_solution(slab);
  Field b(slab);
  apply_laplacian(slab, known, b);

  loom::mpi::ToolInterface tool;
  const auto carried_before = tool.counter("coll_loom_calls", "allreduce");
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  Field x(slab);
  const int iterations = solve(slab, b, x, tolerance, 20 * grid);
  const double seconds = MPI_Wtime() - start;
  const auto carried_after = tool.counter("coll_loom_calls", "allreduce");

  // The residual that the iteration updates drifts from the true one, so judge by the true one.
  Field difference(slab);
  apply_laplacian(slab, x, difference);
  combine(1, b, -1, difference);
  const double residual = std::sqrt(dot(difference, difference) / dot(b, b));
  const double error = largest_difference(x, known);
  const bool right = residual < 10 * tolerance && error < 1e4 * tolerance;
  if (rank == 0) {
    fmt::print(
        "grid {0}^3, {1} ranks: {2} iterations, {3:.3f} s ({4:.1f} us each), residual {5:.1e}, error "
        "{6:.1e}: {7}\n",
        grid, ranks, iterations, seconds, 1e6 * seconds / std::max(iterations, 1), residual, error,
        right ? "right" : "WRONG");
    if (carried_before && carried_after) {
      fmt::print("carried by loom: {} of {} allreduces\n", *carried_after - *carried_before,
                 2 * iterations + 1);
    } else {
      fmt::print("loom is not loaded\n");
    }
  }
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);

  int grid = 48;
  double tolerance = 1e-9;
  CLI::App app("Solves Poisson's equation by conjugate gradients and checks the solution.",
               "conjugate_gradient");
  app.add_option("--grid", grid, "Inner points per edge of the box")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--tolerance", tolerance, "How far to shrink the residual")
      ->check(CLI::Range(1e-13, 1e-2))
      ->capture_default_str();
  int exit_code = 0;
  try {
    app.parse(argc, argv);
    exit_code = run(grid, tolerance, rank, ranks);
  } catch (const CLI::ParseError& error) {
    std::ostringstream text;
    exit_code = app.exit(error, text, text) == 0 ? 0 : 2;  // all ranks read the same arguments
    if (rank == 0) fmt::print(exit_code == 0 ? stdout : stderr, "{}", text.str());
  }
  MPI_Finalize();
  return exit_code;
}
