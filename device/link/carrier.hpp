// carrier.hpp -- who carries the messages of links between kernels of different hosts. A rank's kernel fills
// slots in memory of its host and takes them from there (steps::FarEnd); the carrier of each rank sends and
// receives them, and moves the words that the kernel looks at:
//
// * Where this rank sends: `filled` is the kernel's. Messages up to it, of which the slot notes the number
//   (steps::Sent), are sent in their order; those in between are of no call, and passed over. `consumed` is
//   what the receiver has told.
// * Where it receives: a message goes into the slot of its number, and `filled` becomes its number once all
//   before it have come or are consumed. `consumed` is the kernel's; it may be beyond what has come, by
//   messages of no call. It is what the sender is told.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "device/steps/channel.hpp"

namespace loom::device {

class Carrier {
 public:
  virtual ~Carrier() = default;

  /// Before a call: it goes by links of this kind, and waits for nobody at the ends of others.
  virtual void enter(steps::LinkKind kind) noexcept = 0;
  /// While the kernel of a call runs: carries what there is. Throws Error.
  virtual void advance() = 0;
  /// In its place once the kernel has ended: a rank to which something that this rank has sent or taken has
  /// yet to get; nothing where there is none. Throws Error where that rank cannot be reached; of others
  /// nothing is needed any more.
  virtual std::optional<int> not_quiet() = 0;
  /// Messages carried so far, in any way: grows while there is progress.
  virtual std::uint64_t moves() const noexcept = 0;
  /// Tells the peers that nothing further will come, and gives that a moment to leave.
  virtual void abandon() noexcept = 0;
  /// Tells the peers that this rank has been waiting for long.
  virtual void say_waiting() noexcept = 0;
  /// Whether the peer has said so on every link between it and this rank, and not moved since; nothing where
  /// no link leads there.
  virtual std::optional<bool> waits(int rank) const noexcept = 0;
  /// A rank whose messages are missing while the kernel waits; nothing where none is known to be one.
  virtual std::optional<int> awaited() const = 0;
  /// The way there, and how far both have come: half a sentence.
  virtual std::string standing(int rank) const = 0;
};

}  // namespace loom::device
