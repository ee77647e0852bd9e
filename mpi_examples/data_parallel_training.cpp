// data_parallel_training -- trains a neural network on all ranks: each has a share of the samples and all
// weights. In every step the gradients of each layer are added up over the ranks by a nonblocking allreduce,
// which goes on while those of the layers before it are computed.
//
//   mpirun -n 4 --mca coll_loom_enable 1 data_parallel_training
//
// --compare trains a second time on a communicator without loom, and prints both times.
//
// With --memory device each rank trains on the first GPU that it sees, and MPI calls get addresses there.
//
// The samples are of a function that such a network can be, so the loss can fall to nothing. Checks: it
// falls, below 0.01 in 200 steps; all ranks end with the same weights, bit by bit; and these are within 1e-9
// of those that one rank finds alone, by the CPU. Exit codes: 0 right; 1 wrong, or --require-loom was not
// met; 2 bad arguments, or no kernels.

#include <mpi.h>

#include <mpi-ext.h>  // wants mpi.h

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <sstream>
#include <vector>

#include "base/format.hpp"
#include "mpi_examples/support/loom_pvars.hpp"
#include "mpi_examples/support/vectors.hpp"

namespace {

using loom::mpi::for_each;
using loom::mpi::MemoryKind;
using loom::mpi::Vector;
namespace kernels = loom::kernels;

constexpr int kInputs = 4;
constexpr int kStepsToBound = 200;
constexpr double kRate = 0.1, kMomentum = 0.9, kLossBound = 0.01, kTolerance = 1e-9;

struct Options {
  int samples = 1000, hidden = 32, steps = kStepsToBound;
  std::string memory = "host";
  bool compares = false, requires_loom = false;
};

/// Between -most and most.
std::vector<double> random_numbers(int count, double most, int seed) {
  std::mt19937 generator(static_cast<unsigned>(seed));
  std::vector<double> numbers(static_cast<std::size_t>(count));
  std::uniform_real_distribution<double> distribution(-most, most);
  for (double& number : numbers) number = distribution(generator);
  return numbers;
}

struct Samples {
  std::vector<double> inputs, targets;  ///< what the network gets, kInputs for each, and what it shall answer

  /// The part of one rank.
  Samples(int all, int rank, int ranks) {
    const auto first_of = [&](int r) { return static_cast<int>(std::int64_t{all} * r / ranks); };
    for (int sample = first_of(rank); sample < first_of(rank + 1); ++sample) {
      const std::vector<double> x = random_numbers(kInputs, 1, sample);
      inputs.insert(inputs.end(), x.begin(), x.end());
      targets.push_back(std::abs(x[0] - x[1]) - std::max(x[2], x[3]));
    }
  }
};

struct Layer {
  int inputs, outputs;
  Vector weights, gradient, velocity;  // as kernels.hpp lays weights out
  Vector values;                       // of the rank's samples; on the way back, their errors

  Layer(int input_count, int output_count, int samples, MemoryKind where)
      : inputs(input_count),
        outputs(output_count),
        weights(outputs * (inputs + 1), where),
        gradient(weights.size(), where),
        velocity(weights.size(), where),
        values(samples * outputs, where) {}
};

/// Each rank of the communicator has all weights, and the values of its samples.
class Network {
 public:
  Network(const Options& options, const Samples& samples, MemoryKind where, MPI_Comm comm)
      : where_(where),
        comm_(comm),
        all_samples_(options.samples),
        samples_(static_cast<int>(samples.targets.size())),
        inputs_(samples.inputs, where),
        targets_(samples.targets, where),
        dot_(where, comm) {
    int rank;
    MPI_Comm_rank(comm, &rank);
    int inputs = kInputs;
    for (const int outputs : {options.hidden, options.hidden, 1}) {
      layers_.emplace_back(inputs, outputs, samples_, where);
      Vector& weights = layers_.back().weights;
      if (rank == 0) weights.write(random_numbers(weights.size(), std::sqrt(3.0 / inputs), outputs));
      MPI_Bcast(weights.data(), weights.size(), MPI_DOUBLE, 0, comm);
      inputs = outputs;
    }
  }

  double loss() {
    compute_errors();
    const Vector& errors = layers_.back().values;
    return dot_(errors.data(), errors.data(), errors.size()) / (2 * all_samples_);
  }

  void step() {
    compute_errors();
    std::vector<MPI_Request> requests(layers_.size());
    for (std::size_t l = layers_.size(); l-- > 0;) {
      Layer& layer = layers_[l];
      Vector& in = l > 0 ? layers_[l - 1].values : inputs_;
      for_each(where_, layer.gradient.size(),
               kernels::Gradient{.in = in.data(),
                                 .errors = layer.values.data(),
                                 .gradient = layer.gradient.data(),
                                 .inputs = layer.inputs,
                                 .outputs = layer.outputs,
                                 .samples = samples_});
      // After that kernel, and beside the next ones.
      MPI_Iallreduce(MPI_IN_PLACE, layer.gradient.data(), layer.gradient.size(), MPI_DOUBLE, MPI_SUM, comm_,
                     &requests[l]);
      if (l > 0)
        for_each(where_, in.size(),
                 kernels::Backward{.weights = layer.weights.data(),
                                   .errors = layer.values.data(),
                                   .in = in.data(),
                                   .inputs = layer.inputs,
                                   .outputs = layer.outputs});
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
    for (Layer& layer : layers_) {
      combine(1.0 / all_samples_, layer.gradient, kMomentum, layer.velocity);
      combine(-kRate, layer.velocity, 1, layer.weights);
    }
  }

  int layers() const { return static_cast<int>(layers_.size()); }
  std::vector<double> weights() const {
    std::vector<double> all;
    for (const Layer& layer : layers_) {
      const std::vector<double> some = layer.weights.read();
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

 private:
  /// Of the last layer, for the rank's samples.
  void compute_errors() {
    const Vector* in = &inputs_;
    for (Layer& layer : layers_) {
      for_each(where_, layer.values.size(),
               kernels::Forward{.weights = layer.weights.data(),
                                .in = in->data(),
                                .out = layer.values.data(),
                                .inputs = layer.inputs,
                                .outputs = layer.outputs,
                                .is_last = &layer == &layers_.back()});
      in = &layer.values;
    }
    combine(-1, targets_, 1, layers_.back().values);
  }

  /// y = a x + b y
  void combine(double a, const Vector& x, double b, Vector& y) {
    for_each(where_, y.size(), kernels::Combine{.a = a, .x = x.data(), .b = b, .y = y.data()});
  }

  MemoryKind where_;
  MPI_Comm comm_;
  int all_samples_, samples_;
  Vector inputs_, targets_;
  loom::mpi::DotProduct dot_;
  std::vector<Layer> layers_;
};

/// FNV-1a.
std::uint64_t hash(const std::vector<double>& values) {
  std::uint64_t result = 0xcbf29ce484222325;
  for (const double value : values)
    for (const unsigned char byte : std::bit_cast<std::array<unsigned char, sizeof(value)>>(value))
      result = (result ^ byte) * 0x100000001b3;
  return result;
}

bool same_on_all_ranks(std::uint64_t value) {
  std::uint64_t least, most;
  MPI_Allreduce(&value, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(&value, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
  return least == most;
}

/// Seconds.
double train(Network& network, int steps) {
  const double start = MPI_Wtime();
  for (int i = 0; i < steps; ++i) network.step();
  return MPI_Wtime() - start;
}

/// The same on a communicator without loom.
double train_without_loom(const Options& options, int rank, int ranks) {
  MPI_Comm comm = loom::mpi::dup_without_loom(MPI_COMM_WORLD);
  double seconds;
  {
    Network network(options, Samples(options.samples, rank, ranks), loom::mpi::memory_named(options.memory),
                    comm);
    network.loss();
    seconds = train(network, options.steps);
  }
  MPI_Comm_free(&comm);
  return seconds;
}

int run(const Options& options, int rank, int ranks) {
  const MemoryKind where = loom::mpi::memory_named(options.memory);
  Network network(options, Samples(options.samples, rank, ranks), where, MPI_COMM_WORLD);
  loom::mpi::CarriedAllreduces carried(where == MemoryKind::kDevice);
  const double loss_before =
      network.loss();  // by a blocking call, which prepares what the others need on GPUs
  const double seconds = train(network, options.steps);
  const double loss = network.loss();
  const auto [by_loom, all_by_loom] = carried.of(network.layers() * options.steps + 2);

  const std::vector<double> weights = network.weights();
  const bool same = same_on_all_ranks(hash(weights));
  double difference = 0;
  if (rank == 0) {
    Network alone(options, Samples(options.samples, 0, 1), MemoryKind::kHost, MPI_COMM_SELF);
    for (int i = 0; i < options.steps; ++i) alone.step();
    const std::vector<double> expected = alone.weights();
    for (std::size_t i = 0; i < weights.size(); ++i)
      difference = std::max(difference, std::abs(weights[i] - expected[i]));
  }
  MPI_Bcast(&difference, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  const bool learns = loss < (options.steps < kStepsToBound ? loss_before : kLossBound);
  const bool right = learns && same && difference < kTolerance;
  if (rank == 0)
    loom::print(
        "{} samples, {} weights, {} ranks: {} steps, {:.3f} s ({:.1f} us each), loss {:.1e}, then {:.1e}; "
        "weights {} on all ranks, {:.1e} from those of one: {}\n{}\n",
        options.samples, weights.size(), ranks, options.steps, seconds, 1e6 * seconds / options.steps,
        loss_before, loss, same ? "the same" : "DIFFERENT", difference, right ? "right" : "WRONG", by_loom);
  if (options.compares) {
    const double other = train_without_loom(options, rank, ranks);
    if (rank == 0)
      loom::print("without loom: {:.3f} s ({:.1f} us each)\n", other, 1e6 * other / options.steps);
  }
  return right && (all_by_loom || !options.requires_loom) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);

  Options options;
  CLI::App app("Trains a neural network with a share of the samples on each rank, and checks the result.",
               "data_parallel_training");
  app.add_option("--samples", options.samples, "Of all ranks together")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--hidden", options.hidden, "Size of each of the two hidden layers")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--steps", options.steps, "Of gradient descent")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--memory", options.memory,
                 "Where to train: host, or device, the first GPU that the rank sees")
      ->check(loom::mpi::why_not_in)
      ->capture_default_str();
  app.add_flag("--compare", options.compares, "Train without loom, too");
  app.add_flag("--require-loom", options.requires_loom,
               "Fail unless loom carried every allreduce, of device memory on the GPUs");
  int exit_code = 0;
  try {
    app.parse(argc, argv);
    const std::string no_gpu = loom::mpi::why_no_gpu(options.memory == "device", MPI_COMM_WORLD);
    if (!no_gpu.empty()) throw CLI::ValidationError("--memory", no_gpu);
    if (options.compares && options.memory != "host" && MPIX_Query_cuda_support() != 1)
      throw CLI::ValidationError("--compare", "this Open MPI has no CUDA, so it cannot take device memory");
    exit_code = run(options, rank, ranks);
  } catch (const CLI::ParseError& error) {
    std::ostringstream text;
    exit_code = app.exit(error, text, text) == 0 ? 0 : 2;  // all ranks read the same arguments
    if (rank == 0) loom::print(exit_code == 0 ? stdout : stderr, "{}", text.str());
  }
  MPI_Finalize();
  return exit_code;
}
