// every_kernel.hpp -- the operations and types that have kernels, from the table itself.
#pragma once

#include <utility>
#include <vector>

#include "device/cuda/kernel_args.hpp"

namespace loom::device::cuda {

struct KernelId {
  int op;
  Type type;
};

template <int kOp, int... kType>
void add_kernels(std::vector<KernelId>& all, std::integer_sequence<int, kType...>) {
  const auto add = [&](bool exists, int type) {
    if (exists) all.push_back({kOp, static_cast<Type>(type)});
  };
  (add(has_kernel<kOp, kType>, kType), ...);
}
template <int... kOp>
std::vector<KernelId> every_kernel(std::integer_sequence<int, kOp...>) {
  std::vector<KernelId> all;
  (add_kernels<kOp>(all, std::make_integer_sequence<int, kTypeCount>()), ...);
  return all;
}
inline std::vector<KernelId> every_kernel() {
  return every_kernel(std::make_integer_sequence<int, kKernelOps>());
}

}  // namespace loom::device::cuda
