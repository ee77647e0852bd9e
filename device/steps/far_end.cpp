#include "device/steps/far_end.hpp"

#include "device/schedule/divide_up.hpp"

namespace loom::device::steps {
namespace {

/// Words of an end of a link between hosts: two flags, and what is noted of each slot.
std::size_t words_bytes(const FifoForm& form) {
  return 2 * kFlagBytes + divide_up(form.slot_count * sizeof(Sent), kFlagBytes) * kFlagBytes;
}

}  // namespace

std::size_t bytes_of_far_end(const FifoForm& form) {
  return words_bytes(form) + form.bytes();
}

FarBytes far_bytes(std::span<const FarEnd> ends) {
  FarBytes bytes;
  for (const FarEnd& end : ends) {
    bytes.host += words_bytes(end.form);
    (end.on_gpu ? bytes.gpu : bytes.host) += end.form.bytes();
  }
  return bytes;
}

void place(std::span<FarEnd> ends, std::byte* on_host, std::byte* on_gpu) {
  for (FarEnd& end : ends) {
    end.filled = reinterpret_cast<Word*>(on_host);
    end.consumed = reinterpret_cast<Word*>(on_host + kFlagBytes);
    end.sent = end.sends ? reinterpret_cast<Sent*>(on_host + 2 * kFlagBytes) : nullptr;
    on_host += words_bytes(end.form);
    std::byte*& slots = end.on_gpu ? on_gpu : on_host;
    end.slots = slots;
    slots += end.form.bytes();
  }
}

}  // namespace loom::device::steps
