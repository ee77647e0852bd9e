/* call.h -- one collective call on this rank: its only description, from the C glue of the component to the
 * executors. C and C++ share it, under names of their own. */
#ifndef LOOM_DEVICE_CALL_H
#define LOOM_DEVICE_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/packed_rows.h"

#ifdef __cplusplus
#include <cstddef>
#include <cstdint>

#include "device/reduce/reduce.hpp"
#include "device/streaming.hpp"
extern "C" {
#endif

/* The collectives from LOOM_GATHER on list their blocks one by one. */
enum loom_collective {
  LOOM_ALLREDUCE,
  LOOM_REDUCE,
  LOOM_REDUCE_SCATTER_BLOCK,
  LOOM_BCAST,
  LOOM_ALLGATHER,
  LOOM_ALLTOALL,
  LOOM_BARRIER,
  LOOM_REDUCE_SCATTER,
  LOOM_SCAN,
  LOOM_EXSCAN,
  LOOM_GATHER,
  LOOM_GATHERV,
  LOOM_SCATTER,
  LOOM_SCATTERV,
  LOOM_ALLGATHERV,
  LOOM_ALLTOALLV,
  LOOM_ALLTOALLW,
  LOOM_COLLECTIVE_COUNT
};

/* Operations and element types that have a kernel. The order is that of device/reduce/operations.hpp. */
enum loom_op {
  LOOM_SUM,
  LOOM_PROD,
  LOOM_MIN,
  LOOM_MAX,
  LOOM_LAND,
  LOOM_LOR,
  LOOM_LXOR,
  LOOM_BAND,
  LOOM_BOR,
  LOOM_BXOR,
  LOOM_MINLOC,
  LOOM_MAXLOC,
  LOOM_OP_COUNT
};
enum loom_type {
  LOOM_INT8,
  LOOM_INT16,
  LOOM_INT32,
  LOOM_INT64,
  LOOM_UINT8,
  LOOM_UINT16,
  LOOM_UINT32,
  LOOM_UINT64,
  LOOM_FLOAT,
  LOOM_DOUBLE,
  LOOM_LONG_DOUBLE,
  LOOM_HALF,
  LOOM_BFLOAT16,
  LOOM_COMPLEX_FLOAT,
  LOOM_COMPLEX_DOUBLE,
  LOOM_COMPLEX_LONG_DOUBLE,
  /* Pairs of MINLOC and MAXLOC, as the C structures of MPI are laid out. */
  LOOM_FLOAT_INT,
  LOOM_DOUBLE_INT,
  LOOM_LONG_INT,
  LOOM_INT_INT,
  LOOM_SHORT_INT,
  LOOM_LONG_DOUBLE_INT,
  LOOM_FLOAT_FLOAT,
  LOOM_DOUBLE_DOUBLE,
  LOOM_TYPE_COUNT
};

#ifdef __cplusplus
}
namespace loom::device {
enum class Collective : unsigned {
  kAllreduce = LOOM_ALLREDUCE,
  kReduce = LOOM_REDUCE,
  kReduceScatter = LOOM_REDUCE_SCATTER_BLOCK,
  kBroadcast = LOOM_BCAST,
  kAllGather = LOOM_ALLGATHER,
  kAllToAll = LOOM_ALLTOALL,
  kBarrier = LOOM_BARRIER,
  kReduceScatterV = LOOM_REDUCE_SCATTER,
  kScan = LOOM_SCAN,
  kExscan = LOOM_EXSCAN,
  kGather = LOOM_GATHER,
  kGatherV = LOOM_GATHERV,
  kScatter = LOOM_SCATTER,
  kScatterV = LOOM_SCATTERV,
  kAllGatherV = LOOM_ALLGATHERV,
  kAllToAllV = LOOM_ALLTOALLV,
  kAllToAllW = LOOM_ALLTOALLW
};
}  // namespace loom::device
#define LOOM_COLLECTIVE loom::device::Collective
#define LOOM_OP loom::device::Op
#define LOOM_TYPE loom::device::Type
#define LOOM_BYTES std::byte
#define LOOM_STREAMING loom::device::Streaming
#define LOOM_IS(value) = value
extern "C" {
#else
#define LOOM_COLLECTIVE enum loom_collective
#define LOOM_OP enum loom_op
#define LOOM_TYPE enum loom_type
#define LOOM_BYTES void
#define LOOM_STREAMING struct loom_streamed_copies
#define LOOM_IS(value)
#endif

/* A block of bytes; data is NULL where the buffer is not contiguous. */
struct loom_block {
  LOOM_BYTES* data LOOM_IS(nullptr);
  size_t bytes LOOM_IS(0);
};

/* A non-contiguous buffer, whose layout only its owner knows. */
struct loom_packer {
  /* Packs the next `bytes` of a block to `packed`, or unpacks them from there: each block from its first byte
   * to its last, in any number of steps. Never throws. */
  void (*move)(void* context, int block, LOOM_BYTES* packed, size_t bytes) LOOM_IS(nullptr);
  void* context LOOM_IS(nullptr);
  /* Lists the rows of all blocks, one block packed behind the other. False: they are more than `most`, or
   * there is no memory. NULL: nobody may ask. *list is from malloc. */
  bool (*list_rows)(void* context, size_t most, struct loom_packed_rows** list, size_t* number)
      LOOM_IS(nullptr);
};

/* All ranks give the same collective, type, op, bounds and root, and the same count of elements. n: ranks.
 *
 *   collective             in                     out                    count
 *   allreduce              count                  count                  elements of the message
 *   reduce                 count                  count, at the root     elements of the message
 *   bcast                  count, at the root     count, elsewhere       elements of the message
 *   reduce_scatter_block   n * count              count                  elements of a block
 *   reduce_scatter         bounds[n]              own part               elements of all parts
 *   scan, exscan           count                  count                  elements of the message
 *   allgather              count                  n * count              elements of a block
 *   alltoall               n * count              n * count              elements of a block
 *   barrier                --                     --                     0
 *
 * `in` may be `out`; of an all-gather, it may be this rank's block of `out`. Collectives that only move data
 * count in bytes.
 *
 * Collectives that list their blocks (count: all bytes of in_blocks):
 *
 *   collective             in_blocks              out_blocks
 *   gather, gatherv        1                      n, at the root
 *   scatter, scatterv      n, at the root         1
 *   allgatherv             1                      n
 *   alltoallv, alltoallw   n                      n
 *
 * Rank a's block for rank b has as many bytes as b's block from a; no other rank needs to know how many.
 * Everything that a call points to must stay until the call has ended. */
struct loom_call {
  LOOM_COLLECTIVE collective LOOM_IS(LOOM_COLLECTIVE::kBarrier);
  const LOOM_BYTES* in LOOM_IS(nullptr);
  LOOM_BYTES* out LOOM_IS(nullptr);
  size_t count LOOM_IS(0);                   /* of elements */
  LOOM_TYPE type LOOM_IS(LOOM_TYPE::kUint8); /* of an element */
  LOOM_OP op LOOM_IS(LOOM_OP::kSum);         /* of reductions */
  int root LOOM_IS(0);
  /* Not NULL: the buffer is not contiguous, and `in` or `out`, or the blocks' data, are not used. */
  const struct loom_packer* in_packer LOOM_IS(nullptr);
  const struct loom_packer* out_packer LOOM_IS(nullptr);
  const struct loom_block* in_blocks LOOM_IS(nullptr);
  const struct loom_block* out_blocks LOOM_IS(nullptr);
  /* With blocks: this rank's block for itself is already in place. */
  bool owns_its_block LOOM_IS(false);
  /* Of a reduce_scatter: rank r's part is elements [bounds[r], bounds[r + 1]). */
  const uint64_t* bounds LOOM_IS(nullptr);
  /* For contiguous buffers whose bytes come and go during the call, in blocking calls alone. NULL: operands
   * are there from the start, and results stay. */
  LOOM_STREAMING* streaming LOOM_IS(nullptr);

#ifdef __cplusplus
  size_t elem_bytes() const noexcept {
    return loom::device::size_of(type);
  }
  size_t bytes() const noexcept {
    return count * elem_bytes();
  }
  /* Only of a reduction; nullptr where there is no kernel. */
  loom::device::ReduceFn reduce() const noexcept {
    return loom::device::find_reduce(op, type);
  }
#endif
};

#ifdef __cplusplus
}
#undef LOOM_COLLECTIVE
#undef LOOM_OP
#undef LOOM_TYPE
#undef LOOM_BYTES
#undef LOOM_STREAMING
#undef LOOM_IS

namespace loom::device {

static_assert(LOOM_OP_COUNT == kOpCount && LOOM_TYPE_COUNT == kTypeCount);
static_assert(LOOM_SUM == static_cast<int>(Op::kSum) && LOOM_MAX == static_cast<int>(Op::kMax) &&
              LOOM_LXOR == static_cast<int>(Op::kLxor) && LOOM_BXOR == static_cast<int>(Op::kBxor) &&
              LOOM_MAXLOC == static_cast<int>(Op::kMaxloc));
static_assert(LOOM_INT8 == static_cast<int>(Type::kInt8) && LOOM_UINT8 == static_cast<int>(Type::kUint8) &&
              LOOM_UINT64 == static_cast<int>(Type::kUint64) &&
              LOOM_DOUBLE == static_cast<int>(Type::kDouble) && LOOM_HALF == static_cast<int>(Type::kHalf) &&
              LOOM_COMPLEX_FLOAT == static_cast<int>(Type::kComplexFloat) &&
              LOOM_FLOAT_INT == static_cast<int>(Type::kFloatInt) &&
              LOOM_DOUBLE_DOUBLE == static_cast<int>(Type::kDoubleDouble));

using Block = ::loom_block;
using Packer = ::loom_packer;
using PackedRows = ::loom_packed_rows;
using Call = ::loom_call;

inline constexpr std::size_t kCollectiveCount = LOOM_COLLECTIVE_COUNT;

/// Collectives whose blocks are listed one by one: Call::in_blocks and out_blocks.
constexpr bool lists_blocks(Collective collective) {
  return collective >= Collective::kGather;
}
constexpr bool is_reduction(Collective collective) {
  return collective <= Collective::kReduceScatter || collective == Collective::kReduceScatterV ||
         collective == Collective::kScan || collective == Collective::kExscan;
}
/// Each rank's result is its part of the message.
constexpr bool scatters_result(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kReduceScatterV;
}

/// The size of a call as far as all ranks know it: the bytes of its message, or of one block if it has
/// blocks; of an all-gather of listed blocks, the bytes of all blocks; of other calls with listed blocks, 0.
constexpr std::size_t shared_bytes(const Call& call, int ranks) {
  if (!lists_blocks(call.collective)) return call.bytes();
  std::size_t bytes = 0;
  for (int rank = 0; rank < ranks && call.collective == Collective::kAllGatherV; ++rank)
    bytes += call.out_blocks[rank].bytes;
  return bytes;
}

/// The most bytes that any rank offers the others in such a call.
constexpr std::size_t offered_bytes(Collective collective, std::size_t bytes, int ranks) {
  const bool blocks = collective == Collective::kReduceScatter || collective == Collective::kAllToAll;
  return blocks ? bytes * static_cast<std::size_t>(ranks) : bytes;
}

/// Whether loom has a kernel for the call; if not, only the fallback component can perform it.
inline bool has_kernel(const Call& call) noexcept {
  return !is_reduction(call.collective) || call.reduce() != nullptr;
}

/// No rank has a byte to move, as far as all ranks know.
constexpr bool is_empty(const Call& call) {
  return call.count == 0 && call.collective != Collective::kBarrier && !lists_blocks(call.collective);
}

}  // namespace loom::device
#endif

#endif
