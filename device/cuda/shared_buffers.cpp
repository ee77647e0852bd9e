#include "device/cuda/shared_buffers.hpp"

#include <algorithm>
#include <utility>

namespace loom::device::cuda {

SharedBuffers::SharedBuffers(Gpu& gpu, int ranks, int self)
    : gpu_(gpu), self_(self), known_(static_cast<std::size_t>(ranks)) {}

SharedBuffers::~SharedBuffers() {
  for (List& of_rank : known_)
    for (Known& known : of_rank) drop(known);
}

SharedBuffers::List::const_iterator SharedBuffers::find(int rank, std::uint64_t id) const {
  return std::ranges::find(known_[static_cast<std::size_t>(rank)], id, &Known::id);
}

/// After learn().
SharedBuffers::Known& SharedBuffers::known(int rank, const SharedBuffer& buffer) {
  return const_cast<Known&>(*find(rank, buffer.id));
}

SharedBuffer SharedBuffers::tell_of(const std::byte* buffer, std::size_t bytes) {
  const Gpu::Allocation in = gpu_.allocation_of(buffer);
  const std::uint64_t at = reinterpret_cast<std::uintptr_t>(buffer);
  if (in.id == 0 || at < in.begin || at - in.begin + bytes > in.bytes) return {};
  SharedBuffer told{.id = in.id, .begin = in.begin, .bytes = in.bytes, .offset = at - in.begin};
  if (const auto known = find(self_, in.id); known != known_[static_cast<std::size_t>(self_)].end()) {
    if (known->refused) return {};
    told.handle = known->handle;
    return told;
  }
  if (std::ranges::find(not_shared_, in.id) != not_shared_.end()) return {};
  const auto handle = gpu_.try_share(in.begin);
  if (!handle) {
    if (not_shared_.size() == kMostOfARank) not_shared_.erase(not_shared_.begin());
    not_shared_.push_back(in.id);
    return {};
  }
  told.handle = *handle;
  return told;
}

void SharedBuffers::drop(Known& known) noexcept {
  if (std::exchange(known.mapped, nullptr) != nullptr) gpu_.opened().let_go(known.place());
}

bool SharedBuffers::learn(int rank, const SharedBuffer& buffer) {
  List& of_rank = known_[static_cast<std::size_t>(rank)];
  if (const auto known = find(rank, buffer.id); known != of_rank.end()) {
    of_rank.splice(of_rank.begin(), of_rank, known);
    return !std::exchange(of_rank.front().postponed, false);
  }
  const auto overlaps = [&](const Known& other) {
    return other.begin < buffer.begin + buffer.bytes && buffer.begin < other.begin + other.bytes;
  };
  for (Known& other : of_rank)
    if (overlaps(other)) drop(other);
  of_rank.remove_if(overlaps);
  if (of_rank.size() == kMostOfARank) {
    drop(of_rank.back());
    of_rank.pop_back();
  }
  of_rank.push_front(
      {.id = buffer.id, .begin = buffer.begin, .bytes = buffer.bytes, .handle = buffer.handle});
  if (rank != self_) gpu_.opened().supersede(of_rank.front().place());
  return false;
}

bool SharedBuffers::open(int rank, const SharedBuffer& buffer) {
  Known& known = this->known(rank, buffer);
  if (rank == self_ || known.mapped != nullptr) return true;
  try {
    known.mapped = gpu_.opened().open(known.place());
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool SharedBuffers::is_in_the_way(int rank, const SharedBuffer& buffer) const {
  return rank != self_ && gpu_.opened().is_in_the_way(find(rank, buffer.id)->place());
}

void SharedBuffers::wait_for_room(int rank, const SharedBuffer& buffer, std::chrono::milliseconds moment) {
  Known& known = this->known(rank, buffer);
  if (rank == self_ || known.mapped != nullptr || std::exchange(known.waited_for, true)) return;
  gpu_.opened().wait_for_room(known.place(), moment);
}

void SharedBuffers::refuse(int rank, const SharedBuffer& buffer) {
  Known& known = this->known(rank, buffer);
  drop(known);
  known.refused = true;
}

void SharedBuffers::postpone(int rank, const SharedBuffer& buffer) {
  known(rank, buffer).postponed = true;
}

std::byte* SharedBuffers::at(int rank, const SharedBuffer& buffer) const {
  if (rank == self_)
    return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(buffer.begin + buffer.offset));
  return find(rank, buffer.id)->mapped + buffer.offset;
}

}  // namespace loom::device::cuda
