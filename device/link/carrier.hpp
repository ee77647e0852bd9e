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

#include <cstddef>
#include <optional>
#include <string>

namespace loom::device {

class Carrier {
 public:
  virtual ~Carrier() = default;

  /// Carries what there is. Whether something has moved. Throws Error.
  virtual bool advance() = 0;
  /// Once the kernel of a call has ended: a rank on which something that this rank has sent or taken still
  /// depends on this one's calling advance(); nothing where there is none. Throws Error.
  virtual std::optional<int> not_quiet() = 0;
  /// Tells the peers that nothing further will come.
  virtual void abandon() noexcept = 0;
  /// A rank whose messages are missing while the kernel waits; nothing where none is known to be one.
  virtual std::optional<int> awaited() const = 0;
  /// The way there, and how far both have come: half a sentence.
  virtual std::string standing(int rank) const = 0;
};

}  // namespace loom::device
