// layout.hpp -- what two ranks must have in common to understand each other, as one list, and a hash of it by
// which they find out. FIFOs enter it with the spec of their links (link_specs.hpp).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "component/links/link_specs.hpp"
#include "component/links/shared_layout.hpp"
#include "device/cuda/gpu_links.hpp"
#include "device/cuda/kernel_way.hpp"
#include "device/host/cico_executor.hpp"
#include "device/host/immediate_exchange.hpp"
#include "device/host/tiered_cico_executor.hpp"
#include "device/link/shared_fifo.hpp"
#include "device/link/shared_memory.hpp"
#include "ucx_transport/transport.hpp"

namespace loom {

/// To be counted up when a protocol changes in what the list does not have: what messages mean, which
/// algorithm carries a call, what the set-up exchanges.
inline constexpr std::uint64_t kProtocolVersion = 34;

/// Links between kernels of different hosts.
inline constexpr device::steps::ChannelForm kOfGpus = device::cuda::kernel_form(1, false, true, 1);
inline constexpr auto kSimple = static_cast<std::size_t>(device::steps::Protocol::kSimple);

/// Sizes, offsets and counts of what ranks share or send.
inline constexpr auto kForms = std::to_array<std::uint64_t>({
    // Segments.
    kOneHostBytes,
    kOneOfHostsBytes,
    device::shared_fifo_bytes(kSharedFifo),
    sizeof(device::CicoBuffer),
    offsetof(device::CicoBuffer, banks),
    device::CicoBuffer::kBytes,
    device::CicoBuffer::kBanks,
    sizeof(device::RoundFlags),
    offsetof(device::RoundFlags, waits),
    offsetof(device::RoundFlags, left),
    offsetof(device::RoundFlags, notes),
    device::RoundFlags::kMostBanks,
    sizeof(device::ImmediateArea),
    offsetof(device::ImmediateArea, ring),
    sizeof(device::ImmediateLine),
    offsetof(device::ImmediateLine, payload),
    device::ImmediateArea::kLines,
    device::line_stride(device::ImmediateArea::kLines),
    device::ImmediateArea::kMostOffered,
    device::ImmediateArea::kRingBytes,
    sizeof(device::GroupsBuffer),
    offsetof(device::GroupsBuffer, rail_flags),
    offsetof(device::GroupsBuffer, group_banks),
    offsetof(device::GroupsBuffer, rail_banks),
    device::GroupsBuffer::kGroupBankBytes,
    device::GroupsBuffer::kRailBankBytes,
    sizeof(device::SharedFifoHeader),
    offsetof(device::SharedFifoHeader, consumed),
    offsetof(device::SharedFifoHeader, sender_waits),
    offsetof(device::SharedFifoHeader, receiver_waits),
    sizeof(device::StepFlag),
    device::StepFlag::kAbandoned,
    device::StepFlag::kWaiting,
    // Which call a rank is in.
    device::kCollectiveCount,
    device::ExchangeTag::kBits,
    // The set-up's handles, and messages.
    sizeof(device::SegmentHandle),
    offsetof(device::SegmentHandle, token),
    offsetof(device::SegmentHandle, address),
    sizeof(InboxIds),
    sizeof(ucx_transport::Word),
    offsetof(ucx_transport::Word, note),
    // Of GPUs.
    sizeof(device::cuda::GpuFacts),
    sizeof(device::cuda::GpuLinks::Handle),
    kOfGpus.ring[kSimple].slot_bytes,
    kOfGpus.ring[kSimple].slot_count,
    kOfGpus.tree[kSimple].slot_bytes,
    kOfGpus.tree[kSimple].slot_count,
    kOfGpus.exchange[kSimple].slot_bytes,
    kOfGpus.exchange[kSimple].slot_count,
});

struct Layout {
  /// 2, 3, ... hosts. With more FIFOs are as with the last of these.
  static constexpr std::size_t kHostCounts = 16;
  /// 1, 2, ... ranks of a host. With more there are as many banks as with the last of these.
  static constexpr std::size_t kRankCounts = 128;

  constexpr Layout() {
    auto* fifo = fifos.data();
    *fifo++ = kSharedFifo;
    for (const LinkSpec& spec : kLinkSpecs)
      for (std::size_t i = 0; i < kHostCounts; ++i) *fifo++ = spec.fifo(static_cast<int>(i) + 2);
    for (std::size_t i = 0; i < kRankCounts; ++i) banks[i] = banks_of_hosts(static_cast<int>(i) + 1);
  }
  constexpr std::uint64_t hash() const;

  std::uint64_t protocol_version = kProtocolVersion;
  /// Inside a host; and of each kind of link between hosts, by their number.
  std::array<device::FifoShape, 1 + kLinkKinds * kHostCounts> fifos{};
  std::array<std::uint64_t, kRankCounts> banks{};  ///< on one of several hosts
  std::array<std::uint64_t, kForms.size()> forms = kForms;
};

constexpr std::uint64_t Layout::hash() const {
  std::uint64_t hash = 0;
  const auto mix = [&](std::uint64_t number) {
    hash = (std::rotl(hash, 5) ^ number) * 0x9e37'79b9'7f4a'7c15;
    hash ^= hash >> 32;
  };
  mix(protocol_version);
  for (const auto& [slot_bytes, slot_count, releases_per_credit, bytes_per_credit] : fifos)
    for (const std::uint64_t number : {slot_bytes, slot_count, releases_per_credit, bytes_per_credit})
      mix(number);
  for (const std::uint64_t number : banks) mix(number);
  for (const std::uint64_t number : forms) mix(number);
  return hash;
}

/// The same on ranks that understand each other.
inline constexpr std::uint64_t kLayout = Layout().hash();

}  // namespace loom
