// kernels.hpp -- what the programs compute on GPUs. Each struct has the arguments of a kernel; called with i,
// it computes element i of the result, in a thread of kernels.cu or in a loop on the host
// (support/vectors.hpp).
#pragma once

namespace loom::kernels {

inline constexpr int kThreads = 128;  ///< of a block

/// y = a x + b y
struct Combine {
  static constexpr const char* kName = "combine";
  double a;
  const double* x;
  double b;
  double* y;
  constexpr void operator()(int i) const { y[i] = a * x[i] + b * y[i]; }
};

/// The one kernel that is not a loop over elements: each block adds up products of its own.
struct Dot {
  static constexpr const char* kName = "dot";
  static constexpr int kBlocks = 64;
  const double *x, *y;
  double* sums;  ///< one for each block
};

/// Six times each point less its six neighbours, for whole planes of n x n points with a plane below and
/// above them. Beside a plane's edges all is zero.
struct Laplacian {
  static constexpr const char* kName = "laplacian";
  const double* in;
  double* out;
  int n;
  constexpr void operator()(int i) const {
    const int x = i % n, y = i / n % n, plane = n * n;
    const double* p = in + i;
    const double west = x > 0 ? p[-1] : 0, east = x + 1 < n ? p[1] : 0;
    const double south = y > 0 ? p[-n] : 0, north = y + 1 < n ? p[n] : 0;
    out[i] = 6 * p[0] - west - east - south - north - p[-plane] - p[plane];
  }
};

// A layer of a neural network. It makes `outputs` values of `inputs`, for each sample; row o of its weights
// has one for each input of output o, and the bias behind them.

/// Values of the layer.
struct Forward {
  static constexpr const char* kName = "forward";
  const double *weights, *in;
  double* out;
  int inputs, outputs;
  bool is_last;  ///< its values are the result; others are cut off at zero (ReLU)
  constexpr void operator()(int i) const {
    const double* row = weights + i % outputs * (inputs + 1);
    const double* sample = in + i / outputs * inputs;
    double sum = row[inputs];
    for (int j = 0; j < inputs; ++j) sum += row[j] * sample[j];
    out[i] = is_last || sum > 0 ? sum : 0;
  }
};

/// The loss's derivative by the weights, summed over the samples, of that by the layer's values before ReLU.
struct Gradient {
  static constexpr const char* kName = "gradient";
  const double *in, *errors;
  double* gradient;
  int inputs, outputs, samples;
  constexpr void operator()(int i) const {
    const int output = i / (inputs + 1), input = i % (inputs + 1);
    double sum = 0;
    for (int s = 0; s < samples; ++s)
      sum += errors[s * outputs + output] * (input < inputs ? in[s * inputs + input] : 1);
    gradient[i] = sum;
  }
};

/// Values of the layer before become the loss's derivative by what they were before ReLU.
struct Backward {
  static constexpr const char* kName = "backward";
  const double *weights, *errors;
  double* in;
  int inputs, outputs;
  constexpr void operator()(int i) const {
    const int input = i % inputs;
    const double* sample = errors + i / inputs * outputs;
    double sum = 0;
    for (int o = 0; o < outputs; ++o) sum += weights[o * (inputs + 1) + input] * sample[o];
    in[i] = in[i] > 0 ? sum : 0;
  }
};

}  // namespace loom::kernels
