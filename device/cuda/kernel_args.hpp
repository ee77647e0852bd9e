// kernel_args.hpp -- what kernels.cu and those who launch its kernels agree on. Plain data, of host and
// device.
//
// There are kernels for each operation of device/reduce/operations.hpp, by its number, and for data that is
// only moved, as one more operation. Each has a kernel of both kinds for each type, by its number:
// loom_combine_0_8, loom_collective_0_8. Signed integers take those of unsigned ones where these give the
// same bits.
#pragma once

#include <tuple>
#include <type_traits>

#include "device/packed_rows.h"
#include "device/steps/collective.hpp"

namespace loom::device::cuda {

using PackedRows = ::loom_packed_rows;

inline constexpr int kMove = kOpCount;  ///< with kernels for kUint8 alone
inline constexpr int kKernelOps = kOpCount + 1;

template <int kOp>
using OperationOf =
    std::tuple_element_t<kOp, decltype(std::tuple_cat(Operations{}, std::tuple<steps::NoOperation>{}))>;
template <int kType>
using TypeOf = std::tuple_element_t<kType, Types>;

/// The type whose kernels an operation on this type takes.
constexpr Type kernel_type(int op, Type type) {
  constexpr int kToUnsigned = static_cast<int>(Type::kUint8) - static_cast<int>(Type::kInt8);
  const bool looks_at_sign = op == static_cast<int>(Op::kMin) || op == static_cast<int>(Op::kMax);
  const bool is_signed = type <= Type::kInt64;
  return is_signed && !looks_at_sign ? static_cast<Type>(static_cast<int>(type) + kToUnsigned) : type;
}
static_assert(kernel_type(0, Type::kInt64) == Type::kUint64 && kernel_type(0, Type::kFloat) == Type::kFloat);

template <int kOp, int kType>
inline constexpr bool has_kernel =
    kOp == kMove ? std::is_same_v<TypeOf<kType>, std::uint8_t>
                 : steps::on_device<TypeOf<kType>>&& kernel_type(kOp, Type{kType}) == Type{kType} &&
                       std::is_invocable_v<OperationOf<kOp>, TypeOf<kType>, TypeOf<kType>>;

/// Whom a kernel tells that it has ended.
struct LaunchWords {
  Word* arrived = nullptr;  ///< in device memory: blocks of this launch that have come to their end; 0 before
  Word* ended = nullptr;    ///< on the host: the last block writes `launch` here. nullptr: nobody is told
  Word launch = 0;          ///< this launch's number
};

/// loom_combine_<op>_<type>: operands anywhere, of one length, in their order; results anywhere. A result may
/// be an operand.
struct CombineArgs {
  static constexpr int kMost = 16;  ///< operands, and results
  enum class How : int {
    kFold,    ///< each result is op over all operands
    kScan,    ///< result k is op over operands 0 to k
    kExscan,  ///< result k is op over operands 0 to k - 1. There is none for the first one
    kCopies,  ///< result k is operand k, of counts[k] elements. For data that is only moved
    /// Rows that lie apart become packed, or the other way round. For data that is only moved. in[0] is a
    /// table of `operands` PackedRows, in device memory, and out[0] the packed buffer. 2^results blocks
    /// divide those of an entry between them. They move units of `count` bytes (1, 2, 4, 8 or 16), which
    /// divide all addresses, distances and lengths.
    kPack,
    kUnpack
  };

  How how = How::kFold;
  int operands = 0, results = 0;  ///< at least one each, and as many but for kFold, kPack and kUnpack
  std::size_t count = 0;
  const void* in[kMost] = {};
  void* out[kMost] = {};
  std::size_t counts[kMost] = {};
  LaunchWords words = {};
};
inline constexpr unsigned kCombineThreads = 512;

/// loom_collective_<op>_<type>: one block for each channel.
struct CollectiveArgs {
  steps::Task task;
  steps::ChannelForm form;
  steps::Channel* channels = nullptr;  ///< this rank's, in device memory
  const Word* abandoned = nullptr;     ///< every wait ends once this is not 0
  Word* failed = nullptr;              ///< set when a wait has ended so
  Word* left = nullptr;                ///< set when a block has left: launch it all again, with task.resumes
  LaunchWords words;
  unsigned patience = 0;  ///< see steps::WayOut
};
inline constexpr unsigned kCollectiveThreads = 512;
static_assert(kCollectiveThreads <= steps::kMostThreads);
/// So many blocks fit a multiprocessor, for ranks that share a GPU: 64 registers a thread.
inline constexpr unsigned kCollectiveBlocks = 2;

}  // namespace loom::device::cuda
