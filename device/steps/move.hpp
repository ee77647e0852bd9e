// move.hpp -- one message of each link that takes part: received, reduced, stored and sent on by a group of
// threads: a block of a kernel, or threads of the host in the tests. Three protocols say how a message
// crosses a link; their names are those of NCCL.
//
//            bytes in a slot    order                                          for
//   Simple   bytes              data, then flag: release -- pairs with --      large: one flag for all
//                               flag: acquire, then data
//   LL       2 x bytes          none: half of each 8-byte word is its flag,    tiny: no order to wait for
//                               stored and loaded whole, relaxed
//   LL128    bytes x 128 / 120  per 128-byte line, as Simple; a GPU stores     medium: flags cost 1/16
//                               such a line whole and needs no order
//
// tests/device/steps/protocols.hpp has the same slots as a model whose memory orders are tried one by one.
//
// A group has
//   index(), size()    of this thread, and how many there are
//   any(condition)     whether it holds for one of them, on all; a barrier, too: what each wrote before is
//                      visible to each after
//   pause()            in a fruitless wait
//   kLanes             so many threads, side by side, move a line of LL128 together; size() is a multiple
//   all_lanes(cond)    whether it holds for all of these
//   join_lanes()       on GPUs: these go on together; what each did before comes before what each does after
//
// No move waits without limit: perform() is false, on all threads, when one of them has waited in vain. It
// may then be called again with the same arguments, by as many threads, and goes on. Simple waits before it
// does anything. By LL and LL128 each thread has stored and sent some of its elements, as `turns` says, and
// never computes them again: `in` may be overwritten by then.
//
// Moves are functions of their own, not inlined in each schedule: a hundred combinations of type and
// operation would take as many minutes to compile, and a call costs nothing beside a slice.
#pragma once

#include "device/schedule/divide_up.hpp"
#include "device/steps/elements.hpp"
#include "device/steps/fifo.hpp"

namespace loom::device::steps {

/// value = op over the received operands, in order, with `in` before operand in_at; value -> out and every
/// `to`. What is absent is nullptr, or has the number 0. All ends are of one form.
template <class T>
struct Move {
  const RecvEnd* from = nullptr;
  int froms = 0;
  Word received = 0;  ///< messages on each of `from` before this one
  const SendEnd* to = nullptr;
  int tos = 0;
  Word sent = 0;
  const T* in = nullptr;
  int in_at = 0;
  T* out = nullptr;       ///< may be in
  std::size_t count = 0;  ///< elements, as many as a slot holds at the most
};

/// Loads that a thread has in flight at once, for each operand.
inline constexpr int kUnroll = 4;

namespace detail {

/// Waits until the slots that the message goes to are free; thread i watches end i. The same result on all
/// threads.
template <class T, class Group>
LOOM_HOST_DEVICE bool await_room(Group& group, const Move<T>& move, const FifoForm& form, const WayOut& out) {
  bool failed = false;
  for (int i = group.index(); i < move.tos; i += group.size())
    failed |= !wait_until(group, out,
                          [&] { return load_acquire(move.to[i].consumed) + form.slot_count > move.sent; });
  return !group.any(failed);
}

template <class T, class Group>
LOOM_HOST_DEVICE void give_back(Group& group, const Move<T>& move) {
  for (int i = group.index(); i < move.froms; i += group.size())
    store_release(move.from[i].consumed, move.received + 1);
}

/// Reduces the operands in order: load(-1) is `in`, load(i) what end i has.
template <class Operation, class T, class Unit, class Load>
LOOM_HOST_DEVICE Unit fold(const Move<T>& move, Load&& load) {
  Unit value = {};
  bool first = true;
  const auto take = [&](Unit operand) {
    value = first ? operand : combine<Operation, T>(value, operand);
    first = false;
  };
  for (int i = 0; i < move.froms; ++i) {
    if (move.in != nullptr && i == move.in_at) take(load(-1));
    take(load(i));
  }
  if (move.in != nullptr && move.in_at >= move.froms) take(load(-1));
  return value;
}

}  // namespace detail

/// Data, then a flag for all of it. Large messages.
struct SimpleMove {
  LOOM_HOST_DEVICE static constexpr std::size_t data_bytes(const FifoForm& form) { return form.slot_bytes; }
  template <class T>
  static constexpr bool carries = true;

  template <class Operation, class T, class Group>
  LOOM_HOST_DEVICE LOOM_NOINLINE static bool perform(Group& group, const Move<T>& move, const FifoForm& form,
                                                     const WayOut& out, std::uint32_t& /*turns*/) {
    bool failed = false;
    for (int i = group.index(); i < move.froms; i += group.size())
      failed |= !wait_until(group, out, [&] { return load_acquire(move.from[i].filled) > move.received; });
    if (group.any(failed) || !detail::await_room(group, move, form, out)) return false;

    const std::size_t vectors = divide_up(move.count, elems_in<T, Vector>);
    const auto index = static_cast<std::size_t>(group.index()), size = static_cast<std::size_t>(group.size());
    const std::size_t from_slot = form.offset_of(move.received + 1), to_slot = form.offset_of(move.sent + 1);
    for (std::size_t first = index; first < vectors; first += size * kUnroll)
      several<Operation>(move, from_slot, to_slot, first, size, vectors);

    group.any(false);
    for (int i = group.index(); i < move.tos; i += group.size()) {
      if (move.to[i].sent != nullptr)
        move.to[i].sent[move.sent % form.slot_count] = {move.sent + 1, move.count * sizeof(T)};
      store_release(move.to[i].filled, move.sent + 1);
    }
    detail::give_back(group, move);
    return true;
  }

 private:
  /// kUnroll vectors, `stride` apart: all loads of an operand come before anything is computed.
  template <class Operation, class T>
  LOOM_HOST_DEVICE static void several(const Move<T>& move, std::size_t from_slot, std::size_t to_slot,
                                       std::size_t first, std::size_t stride, std::size_t vectors) {
    struct Several {
      Vector vector[kUnroll];
    };
    const Buffer<const T, Vector> in(move.in, move.count);
    Several value = {};
    bool empty = true;
    const auto take = [&](const Several& operand) {
      LOOM_UNROLL
      for (int u = 0; u < kUnroll; ++u)
        value.vector[u] =
            empty ? operand.vector[u] : combine<Operation, T>(value.vector[u], operand.vector[u]);
      empty = false;
    };
    const auto take_in = [&] {
      Several operand = {};
      LOOM_UNROLL
      for (int u = 0; u < kUnroll; ++u)
        if (const std::size_t i = first + static_cast<std::size_t>(u) * stride; i < vectors)
          operand.vector[u] = in.load(i);
      take(operand);
    };
    for (int end = 0; end < move.froms; ++end) {
      if (move.in != nullptr && end == move.in_at) take_in();
      const auto* const slot = reinterpret_cast<const Vector*>(slot_of(move.from[end], from_slot));
      Several operand = {};
      LOOM_UNROLL
      for (int u = 0; u < kUnroll; ++u)
        if (const std::size_t i = first + static_cast<std::size_t>(u) * stride; i < vectors)
          operand.vector[u] = slot[i];
      take(operand);
    }
    if (move.in != nullptr && move.in_at >= move.froms) take_in();

    const Buffer<T, Vector> result(move.out, move.count);
    LOOM_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const std::size_t i = first + static_cast<std::size_t>(u) * stride;
      if (i >= vectors) continue;
      if (move.out != nullptr) result.store(i, value.vector[u]);
      for (int end = 0; end < move.tos; ++end)
        reinterpret_cast<Vector*>(slot_of(move.to[end], to_slot))[i] = value.vector[u];
    }
  }
};

/// Half of each word is its flag. Small messages: nothing waits for an order of stores. The flag is the lower
/// half of the message's number, which repeats after 2^32 messages: some message in between must have written
/// the word, as equal slices do.
struct LLMove {
  LOOM_HOST_DEVICE static constexpr std::size_t data_bytes(const FifoForm& form) {
    return form.slot_bytes / 2;
  }
  template <class T>
  static constexpr bool carries = true;

  template <class Operation, class T, class Group>
  LOOM_HOST_DEVICE LOOM_NOINLINE static bool perform(Group& group, const Move<T>& move, const FifoForm& form,
                                                     const WayOut& out, std::uint32_t& turns) {
    if (!detail::await_room(group, move, form, out)) return false;
    const Buffer<const T, Vector> in(move.in, move.count);
    const Buffer<T, Vector> result(move.out, move.count);
    const std::size_t vectors = divide_up(move.count, elems_in<T, Vector>);
    const std::size_t from_slot = form.offset_of(move.received + 1), to_slot = form.offset_of(move.sent + 1),
                      stride = static_cast<std::size_t>(group.size());
    bool failed = false;
    std::uint32_t done = turns;
    for (std::size_t i = static_cast<std::size_t>(group.index()) + done * stride; i < vectors;
         i += stride, ++done) {
      const Vector value = detail::fold<Operation, T, Vector>(move, [&](int end) {
        if (end < 0) return in.load(i);
        Vector received = {};
        const Word* const at = slot_of(move.from[end], from_slot) + i * kWords;
        failed = failed || !wait_until(group, out, [&] { return try_read(at, received, move.received + 1); });
        return received;
      });
      if (failed) break;
      if (move.out != nullptr) result.store(i, value);
      for (int end = 0; end < move.tos; ++end)
        write(slot_of(move.to[end], to_slot) + i * kWords, value, move.sent + 1);
    }
    turns = done;
    if (group.any(failed)) return false;
    detail::give_back(group, move);
    return true;
  }

 private:
  static constexpr std::size_t kWords = 4;  ///< of a slot, for a vector of data

  LOOM_HOST_DEVICE static void write(Word* at, Vector value, Word step) {
    LOOM_UNROLL
    for (int i = 0; i < 2; ++i)
      store_relaxed(at + 2 * i,
                    {(value.word[i] & 0xffffffffU) | step << 32, value.word[i] >> 32 | step << 32});
  }
  LOOM_HOST_DEVICE static bool try_read(const Word* at, Vector& value, Word step) {
    const Vector a = load_relaxed(at), b = load_relaxed(at + 2);
    const Word flag = step & 0xffffffffU;
    value = {{(a.word[0] & 0xffffffffU) | a.word[1] << 32, (b.word[0] & 0xffffffffU) | b.word[1] << 32}};
    return a.word[0] >> 32 == flag && a.word[1] >> 32 == flag && b.word[0] >> 32 == flag &&
           b.word[1] >> 32 == flag;
  }
};

/// 15 words of data and a flag in each line of 128 bytes. Medium messages. A GPU's lanes store a line with
/// one instruction, and NVLink and PCIe inside one GPU's memory keep it whole; the host keeps the order
/// instead.
struct LL128Move {
  LOOM_HOST_DEVICE static constexpr std::size_t data_bytes(const FifoForm& form) {
    return form.slot_bytes / kLineBytes * kDataWords * sizeof(Word);
  }
  /// A line ends inside an element of 16 bytes.
  template <class T>
  static constexpr bool carries = sizeof(T) <= sizeof(Word);

  template <class Operation, class T, class Group>
  LOOM_HOST_DEVICE LOOM_NOINLINE static bool perform(Group& group, const Move<T>& move, const FifoForm& form,
                                                     const WayOut& out, std::uint32_t& turns) {
    static_assert(carries<T>);
    if (!detail::await_room(group, move, form, out)) return false;
    constexpr int kPairs = static_cast<int>(kLineWords) / 2 / Group::kLanes;  // of words, of this lane
    struct Share {
      Vector pair[kPairs];
    };
    const Buffer<const T, Word> in(move.in, move.count);
    const Buffer<T, Word> result(move.out, move.count);
    const std::size_t words = divide_up(move.count, elems_in<T, Word>), lines = divide_up(words, kDataWords);
    const int lane = group.index() % Group::kLanes;
    const bool has_flag = lane == Group::kLanes - 1;
    const std::size_t from_slot = form.offset_of(move.received + 1), to_slot = form.offset_of(move.sent + 1),
                      stride = static_cast<std::size_t>(group.size() / Group::kLanes);
    bool failed = false;
    std::uint32_t done = turns;
    for (std::size_t line = static_cast<std::size_t>(group.index() / Group::kLanes) + done * stride;
         line < lines; line += stride, ++done) {
      const auto word_in_line = [&](int pair, int half) {
        return static_cast<std::size_t>((lane * kPairs + pair) * 2 + half);
      };
      Share value = {};
      bool empty = true;
      const auto take = [&](const Share& operand) {
        LOOM_UNROLL
        for (int p = 0; p < kPairs; ++p) LOOM_UNROLL
        for (int half = 0; half < 2; ++half) {
          Word& to = value.pair[p].word[half];
          const Word from = operand.pair[p].word[half];
          to = empty ? from : combine<Operation, T>(to, from);
        }
        empty = false;
      };
      const auto take_in = [&] {
        Share own = {};
        LOOM_UNROLL
        for (int p = 0; p < kPairs; ++p) LOOM_UNROLL
        for (int half = 0; half < 2; ++half)
          if (const std::size_t w = word_in_line(p, half); w < kDataWords)
            own.pair[p].word[half] = in.load(line * kDataWords + w);
        take(own);
      };
      for (int end = 0; end < move.froms && !failed; ++end) {
        if (move.in != nullptr && end == move.in_at) take_in();
        const Word* const at = slot_of(move.from[end], from_slot) + line * kLineWords;
        Share received = {};
        failed |= !wait_until(
            group, out, [&] { return try_read(group, at, received, move.received + 1); },
            [&](bool taken) { return !group.all_lanes(!taken); });
        take(received);
      }
      if (failed) break;
      if (move.in != nullptr && move.in_at >= move.froms) take_in();
      LOOM_UNROLL
      for (int p = 0; p < kPairs; ++p) LOOM_UNROLL
      for (int half = 0; half < 2; ++half)
        if (const std::size_t w = word_in_line(p, half); w < kDataWords && move.out != nullptr)
          result.store(line * kDataWords + w, value.pair[p].word[half]);
      if (has_flag) value.pair[kPairs - 1].word[1] = move.sent + 1;
      for (int end = 0; end < move.tos; ++end)
        write(group, slot_of(move.to[end], to_slot) + line * kLineWords, lane, value);
    }
    turns = done;
    if (group.any(failed)) return false;
    detail::give_back(group, move);
    return true;
  }

 private:
  static constexpr std::size_t kLineBytes = 128, kLineWords = kLineBytes / sizeof(Word),
                               kDataWords = kLineWords - 1;

  template <class Group, class Share>
  LOOM_HOST_DEVICE static void write(Group& group, Word* line, int lane, const Share& value) {
    constexpr int kPairs = sizeof(Share) / sizeof(Vector);
#ifdef __CUDA_ARCH__
    group.join_lanes();  // bounds and alignment have parted them: the line is whole if they store it together
    LOOM_UNROLL
    for (int p = 0; p < kPairs; ++p) store_relaxed(line + (lane * kPairs + p) * 2, value.pair[p]);
#else
    static_cast<void>(group);
    static_assert(Group::kLanes == 1, "the host has no stores of a whole line");
    for (std::size_t w = 0; w < kDataWords; ++w) line[w] = value.pair[w / 2].word[w % 2];
    store_release(line + kDataWords, value.pair[kPairs - 1].word[1]);
    static_cast<void>(lane);
#endif
  }
  template <class Group, class Share>
  LOOM_HOST_DEVICE static bool try_read(Group& group, const Word* line, Share& value, Word step) {
    constexpr int kPairs = sizeof(Share) / sizeof(Vector);
#ifdef __CUDA_ARCH__
    const int lane = group.index() % Group::kLanes;
    const auto load = [&] {
      group.join_lanes();
      LOOM_UNROLL
      for (int p = 0; p < kPairs; ++p) value.pair[p] = load_relaxed(line + (lane * kPairs + p) * 2);
    };
    load();
    if (!group.all_lanes(lane != Group::kLanes - 1 || value.pair[kPairs - 1].word[1] == step)) return false;
    load();  // other lanes may have loaded their part before the one with the flag did
    return true;
#else
    static_cast<void>(group);
    if (load_acquire(line + kDataWords) != step) return false;
    for (std::size_t w = 0; w < kDataWords; ++w) value.pair[w / 2].word[w % 2] = line[w];
    value.pair[kPairs - 1].word[1] = 0;
    return true;
#endif
  }
};

}  // namespace loom::device::steps
