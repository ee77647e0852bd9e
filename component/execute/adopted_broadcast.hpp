// adopted_broadcast.hpp -- a broadcast whose root has another number of bytes than this rank. This rank
// performs the call with the root's number, and keeps what it has room for.
#pragma once

#include <algorithm>
#include <cstring>

#include "device/call.h"

namespace loom {

class AdoptedBroadcast {
 public:
  /// own: the program's call on this rank; bytes: those of the root.
  AdoptedBroadcast(const device::Call& own, std::size_t bytes)
      : own_(own), bytes_(bytes), packer_{move, this} {}
  AdoptedBroadcast(const AdoptedBroadcast&) = delete;
  AdoptedBroadcast& operator=(const AdoptedBroadcast&) = delete;

  /// The call refers to this object, and can be performed once.
  device::Call call() const {
    device::Call call = own_;
    call.count = bytes_;
    call.type = device::Type::kUint8;
    call.out = nullptr;
    call.out_packer = &packer_;
    call.streaming = nullptr;
    return call;
  }
  std::size_t bytes() const noexcept { return bytes_; }
  std::size_t room() const noexcept { return own_.bytes(); }
  bool fits() const noexcept { return bytes_ <= room(); }

 private:
  static void move(void* context, int, std::byte* packed, std::size_t bytes) {
    auto& self = *static_cast<AdoptedBroadcast*>(context);
    const std::size_t kept = std::min(bytes, self.room() - std::min(self.at_, self.room()));
    if (kept > 0 && self.own_.out_packer != nullptr)
      self.own_.out_packer->move(self.own_.out_packer->context, 0, packed, kept);
    else if (kept > 0)
      std::memcpy(self.own_.out + self.at_, packed, kept);
    self.at_ += bytes;
  }

  device::Call own_;
  std::size_t bytes_, at_ = 0;
  device::Packer packer_;
};

}  // namespace loom
