// conjugate_gradient -- solves Poisson's equation in a box by conjugate gradients, as many programs do:
// planes of the grid are spread over the ranks, neighbours exchange halos, and every iteration has two dot
// products, each an MPI_Allreduce of 8 bytes: the latency of small allreduces decides how far this scales.
//
//   mpirun -n 4 --mca coll_loom_enable 1 conjugate_gradient --grid 64
//
// --compare solves it a second time on a communicator without loom, and prints both times.
//
// With --memory device each rank solves on the first GPU that it sees, and MPI calls get addresses there. The
// allreduces are of 512 bytes then, a sum for each block of threads.
//
// The right-hand side is made from a known solution, so that the result can be checked point by point, by the
// CPU. Exit codes: 0 solved; 1 not converged or wrong, or --require-loom was not met; 2 bad arguments, or no
// kernels.

#include <mpi.h>

#include <mpi-ext.h>  // wants mpi.h

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <vector>

#include "base/format.hpp"
#include "mpi_examples/support/loom_pvars.hpp"
#include "mpi_examples/support/vectors.hpp"

namespace {

using loom::mpi::MemoryKind;
namespace kernels = loom::kernels;

/// This rank's planes of an n x n x n grid. Ranks beyond the n-th have none.
struct Slab {
  int n, first, planes;
  bool has_below, has_above;  // planes of neighbouring ranks
  MPI_Comm line;              // of all ranks, in which the ranks before and after are neighbours

  Slab(int grid, int rank, int ranks) : n(grid) {
    const int share = n / ranks;
    const int larger = n % ranks;  // the first ranks take one plane more
    planes = share + (rank < larger ? 1 : 0);
    first = rank * share + std::min(rank, larger);
    has_below = planes > 0 && first > 0;
    has_above = planes > 0 && first + planes < n;
    const int is_ring = 0;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &is_ring, 0, &line);
  }
  ~Slab() { MPI_Comm_free(&line); }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  int plane_points() const { return n * n; }
  int points() const { return planes * plane_points(); }
};

/// Values on a slab with one halo plane on either side; outside the box they are zero.
class Field {
 public:
  Field(const Slab& slab, MemoryKind where)
      : slab_(slab), values_(slab.points() + 2 * slab.plane_points(), where) {}
  /// A copy.
  Field(const Field& other, MemoryKind where) : slab_(other.slab_), values_(other.values_, where) {}

  const Slab& slab() const { return slab_; }
  MemoryKind where() const { return values_.where(); }
  double* begin() const { return values_.data() + slab_.plane_points(); }
  double* end() const { return begin() + slab_.points(); }

  /// A collective, because loom takes those on device memory, too: it copies the planes to the host and back.
  /// MPI_Sendrecv would need an Open MPI with CUDA, or such copies in the program.
  void exchange_halos() {
    const int plane = slab_.plane_points(), points = slab_.points();
    const int counts[] = {slab_.has_below ? plane : 0, slab_.has_above ? plane : 0};
    const int edges[] = {plane, points}, halos[] = {0, plane + points};
    MPI_Neighbor_alltoallv(values_.data(), counts, edges, MPI_DOUBLE, values_.data(), counts, halos,
                           MPI_DOUBLE, slab_.line);
  }

 private:
  const Slab& slab_;
  loom::mpi::Vector values_;
};

/// out = A in: six times each point less its six neighbours. The halos are there.
void apply_laplacian(const Field& in, Field& out) {
  const Slab& slab = in.slab();
  const int n = slab.n;
  if (in.where() == MemoryKind::kDevice)
    return loom::mpi::for_each(MemoryKind::kDevice, slab.points(),
                               kernels::Laplacian{.in = in.begin(), .out = out.begin(), .n = n});
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

/// y = a x + b y
void combine(double a, const Field& x, double b, Field& y) {
  loom::mpi::for_each(y.where(), y.slab().points(),
                      kernels::Combine{.a = a, .x = x.begin(), .b = b, .y = y.begin()});
}

/// With its halos. Zero on the box's faces, asymmetric inside: a smoother choice could be an eigenvector,
/// solved in one iteration.
Field known_solution(const Slab& slab) {
  Field u(slab, MemoryKind::kHost);
  const auto bump = [&](int i) {
    const double t = (i + 1.0) / (slab.n + 1.0);
    return t * (1 - t) * std::exp(2 * t);
  };
  double* point = u.begin() - slab.plane_points();
  for (int z = -1; z <= slab.planes; ++z) {
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

double norm(const Field& a) {
  loom::mpi::DotProduct dot(a.where(), MPI_COMM_WORLD);
  return std::sqrt(dot(a.begin(), a.begin(), a.slab().points()));
}

/// Solves A x = b from x = 0 until the residual has shrunk by `tolerance`; returns the iterations.
int solve(const Field& b, Field& x, double tolerance, int most_iterations, MPI_Comm comm) {
  loom::mpi::DotProduct dots(x.where(), comm);
  const auto dot = [&](const Field& u, const Field& v) {
    return dots(u.begin(), v.begin(), u.slab().points());
  };
  Field residual(b, x.where());
  Field direction(b, x.where());
  Field applied(x.slab(), x.where());
  double residual_squared = dot(residual, residual);
  const double goal = tolerance * tolerance * residual_squared;
  int iteration = 0;
  while (residual_squared > goal && iteration < most_iterations) {
    direction.exchange_halos();
    apply_laplacian(direction, applied);
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

struct Solved {
  int iterations;
  double seconds;
  double us_each() const { return 1e6 * seconds / std::max(iterations, 1); }
};

Solved timed_solve(const Field& b, Field& x, double tolerance, int most_iterations, MPI_Comm comm) {
  MPI_Barrier(comm);
  const double start = MPI_Wtime();
  const int iterations = solve(b, x, tolerance, most_iterations, comm);
  return {iterations, MPI_Wtime() - start};
}

/// The same on a communicator without loom.
Solved solve_without_loom(const Field& b, double tolerance, int most_iterations) {
  MPI_Comm comm = loom::mpi::dup_without_loom(MPI_COMM_WORLD);
  Field first(b.slab(), b.where()), x(b.slab(), b.where());
  solve(b, first, tolerance, 1, comm);
  const Solved solved = timed_solve(b, x, tolerance, most_iterations, comm);
  MPI_Comm_free(&comm);
  return solved;
}

/// The CPU poses the problem and judges the solution.
int run(int grid, double tolerance, MemoryKind where, bool compares, bool requires_loom, int rank,
        int ranks) {
  const Slab slab(grid, rank, ranks);
  const Field known = known_solution(slab);
  Field posed(slab, MemoryKind::kHost);
  apply_laplacian(known, posed);

  const Field b(posed, where);
  Field x(slab, where), first(slab, where);
  solve(b, first, tolerance, 1, MPI_COMM_WORLD);  // the first calls connect the ranks, and load kernels
  loom::mpi::CarriedAllreduces carried(where == MemoryKind::kDevice);
  MPI_Barrier(MPI_COMM_WORLD);
  const Solved solved = timed_solve(b, x, tolerance, 20 * grid, MPI_COMM_WORLD);
  const auto [by_loom, all_by_loom] = carried.of(2 * solved.iterations + 1);

  // The residual that the iteration updates drifts from the true one, so judge by the true one.
  Field solution(x, MemoryKind::kHost), difference(slab, MemoryKind::kHost);
  solution.exchange_halos();
  apply_laplacian(solution, difference);
  combine(1, posed, -1, difference);
  const double residual = norm(difference) / norm(posed);
  const double error = largest_difference(solution, known);
  // With wrong dot products the method finds the solution all the same, only later.
  const bool dots_agree = std::abs(norm(b) - norm(posed)) < 1e-10 * norm(posed);
  const bool right = residual < 10 * tolerance && error < 1e4 * tolerance && dots_agree;
  if (rank == 0)
    loom::print(
        "grid {0}^3, {1} ranks: {2} iterations, {3:.3f} s ({4:.1f} us each), residual {5:.1e}, error "
        "{6:.1e}: {7}\n{8}\n",
        grid, ranks, solved.iterations, solved.seconds, solved.us_each(), residual, error,
        right ? "right" : "WRONG", by_loom);
  if (compares) {
    const Solved other = solve_without_loom(b, tolerance, 20 * grid);
    if (rank == 0)
      loom::print("without loom: {} iterations, {:.3f} s ({:.1f} us each)\n", other.iterations, other.seconds,
                  other.us_each());
  }
  return right && (all_by_loom || !requires_loom) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);

  int grid = 48;
  double tolerance = 1e-9;
  std::string memory = "host";
  bool compares = false, requires_loom = false;
  CLI::App app("Solves Poisson's equation by conjugate gradients and checks the solution.",
               "conjugate_gradient");
  app.add_option("--grid", grid, "Inner points per edge of the box")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--tolerance", tolerance, "How far to shrink the residual")
      ->check(CLI::Range(1e-13, 1e-2))
      ->capture_default_str();
  app.add_option("--memory", memory, "Where to solve: host, or device, the first GPU that the rank sees")
      ->check(loom::mpi::why_not_in)
      ->capture_default_str();
  app.add_flag("--compare", compares, "Solve it without loom, too");
  app.add_flag("--require-loom", requires_loom,
               "Fail unless loom carried every allreduce, of device memory on the GPUs");
  int exit_code = 0;
  try {
    app.parse(argc, argv);
    const std::string no_gpu = loom::mpi::why_no_gpu(memory == "device", MPI_COMM_WORLD);
    if (!no_gpu.empty()) throw CLI::ValidationError("--memory", no_gpu);
    if (compares && memory != "host" && MPIX_Query_cuda_support() != 1)
      throw CLI::ValidationError("--compare", "this Open MPI has no CUDA, so it cannot take device memory");
    exit_code = run(grid, tolerance, loom::mpi::memory_named(memory), compares, requires_loom, rank, ranks);
  } catch (const CLI::ParseError& error) {
    std::ostringstream text;
    exit_code = app.exit(error, text, text) == 0 ? 0 : 2;  // all ranks read the same arguments
    if (rank == 0) loom::print(exit_code == 0 ? stdout : stderr, "{}", text.str());
  }
  MPI_Finalize();
  return exit_code;
}
