// fifo_shapes.hpp -- the form of every FIFO; equal on all ranks, since both ends count slots.
#pragma once

#include "device/host/shared_fifo.hpp"

namespace loom {

// Half a MiB, so that a slice is still in the receiver's reach of the sender's L2 cache when it is taken.
inline constexpr device::FifoShape kSharedFifo{.slot_bytes = 64 * 1024, .slot_count = 8};
// Enough in flight for 100 Gbit/s at 20 us; short enough slots that a ring of few hosts is a pipeline.
inline constexpr device::FifoShape kNetFifo{.slot_bytes = 128 * 1024, .slot_count = 8};
// Between the first ranks of hosts, for what is short: calls may follow each other before the first credit is
// back.
inline constexpr device::FifoShape kHostsFifo{
    .slot_bytes = 16 * 1024, .slot_count = 8, .releases_per_credit = 4};

}  // namespace loom
