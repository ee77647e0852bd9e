// rounds.hpp -- the calls of mpi_faulted: collectives in rounds, whose results every rank can tell.
#pragma once

#include <mpi.h>

#include <unistd.h>

#include <array>
#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/faults/fault.hpp"
#include "tests/mpi/init_forms.hpp"

namespace faults {

inline constexpr int kCallsBefore = 10, kCallsAfter = 25;
inline constexpr int kInts = 1 << 18;  // 1 MiB: loom carries that on one host and between hosts

enum class Kind { kAllreduce, kBcast, kStridedBcast, kAllgather, kAlltoall };
enum class Form { kBlocking, kNonblocking, kPersistent };

/// A collective call with its buffers, whose result every rank can tell.
class Call {
 public:
  /// Of so many numbers in all, and one more in each block where that leaves none.
  Call(Kind kind, int count, MPI_Comm comm) : kind_(kind), comm_(comm) {
    MPI_Comm_rank(comm, &rank_);
    MPI_Comm_size(comm, &ranks_);
    block_ = is_blocks() ? count / ranks_ + 1 : count;
    const std::size_t all = static_cast<std::size_t>(block_) * static_cast<std::size_t>(ranks_);
    operand_.resize(kind == Kind::kAlltoall ? all : static_cast<std::size_t>(block_));
    result_.resize(is_blocks() ? all : static_cast<std::size_t>(block_));
    MPI_Type_vector((block_ + 1) / 2, 1, 2, MPI_INT, &every_other_);
    MPI_Type_commit(&every_other_);
  }

  void fill(int round) {
    round_ = round;
    for (std::size_t i = 0; i < operand_.size(); ++i) operand_[i] = given(rank_, static_cast<int>(i));
    for (std::size_t i = 0; i < result_.size(); ++i) result_[i] = -1 - static_cast<int>(i);
    if (is_bcast() && rank_ == root()) result_ = operand_;
  }

  int perform() {
    switch (kind_) {
      case Kind::kAllreduce:
        return MPI_Allreduce(operand_.data(), result_.data(), block_, MPI_INT, MPI_SUM, comm_);
      case Kind::kBcast:
        return MPI_Bcast(result_.data(), block_, MPI_INT, root(), comm_);
      case Kind::kStridedBcast:
        return MPI_Bcast(result_.data(), 1, every_other_, root(), comm_);
      case Kind::kAllgather:
        return MPI_Allgather(operand_.data(), block_, MPI_INT, result_.data(), block_, MPI_INT, comm_);
      case Kind::kAlltoall:
        return MPI_Alltoall(operand_.data(), block_, MPI_INT, result_.data(), block_, MPI_INT, comm_);
    }
    return MPI_ERR_OTHER;
  }

  int start(MPI_Request* request) {
    switch (kind_) {
      case Kind::kAllreduce:
        return MPI_Iallreduce(operand_.data(), result_.data(), block_, MPI_INT, MPI_SUM, comm_, request);
      case Kind::kBcast:
        return MPI_Ibcast(result_.data(), block_, MPI_INT, root(), comm_, request);
      case Kind::kStridedBcast:
        return MPI_Ibcast(result_.data(), 1, every_other_, root(), comm_, request);
      case Kind::kAllgather:
        return MPI_Iallgather(operand_.data(), block_, MPI_INT, result_.data(), block_, MPI_INT, comm_,
                              request);
      case Kind::kAlltoall:
        return MPI_Ialltoall(operand_.data(), block_, MPI_INT, result_.data(), block_, MPI_INT, comm_,
                             request);
    }
    return MPI_ERR_OTHER;
  }

  /// The root of a persistent broadcast stays as it is: 0.
  int make(MPI_Request* request) {
    root_stays_ = true;
    switch (kind_) {
      case Kind::kAllreduce:
        return INIT(Allreduce)(operand_.data(), result_.data(), block_, MPI_INT, MPI_SUM, comm_,
                               MPI_INFO_NULL, request);
      case Kind::kBcast:
        return INIT(Bcast)(result_.data(), block_, MPI_INT, root(), comm_, MPI_INFO_NULL, request);
      case Kind::kStridedBcast:
        return INIT(Bcast)(result_.data(), 1, every_other_, root(), comm_, MPI_INFO_NULL, request);
      case Kind::kAllgather:
        return INIT(Allgather)(operand_.data(), block_, MPI_INT, result_.data(), block_, MPI_INT, comm_,
                               MPI_INFO_NULL, request);
      case Kind::kAlltoall:
        return INIT(Alltoall)(operand_.data(), block_, MPI_INT, result_.data(), block_, MPI_INT, comm_,
                              MPI_INFO_NULL, request);
    }
    return MPI_ERR_OTHER;
  }

  /// Writes down the first wrong number.
  bool is_right() const {
    for (std::size_t i = 0; i < result_.size(); ++i) {
      if (result_[i] == expected(static_cast<int>(i))) continue;
      record("wrong kind %d round %d element %zu: %d instead of %d", static_cast<int>(kind_), round_, i,
             result_[i], expected(static_cast<int>(i)));
      return false;
    }
    return true;
  }

 private:
  bool is_blocks() const { return kind_ == Kind::kAllgather || kind_ == Kind::kAlltoall; }
  bool is_bcast() const { return kind_ == Kind::kBcast || kind_ == Kind::kStridedBcast; }
  int root() const { return root_stays_ ? 0 : round_ % ranks_; }
  int given(int by, int i) const { return (by + 1) * (round_ % 7 + 1) + i % 31; }
  int expected(int i) const {
    switch (kind_) {
      case Kind::kAllreduce:
        return ranks_ * (ranks_ + 1) / 2 * (round_ % 7 + 1) + ranks_ * (i % 31);
      case Kind::kBcast:
        return given(root(), i);
      case Kind::kStridedBcast:
        return rank_ == root() || i % 2 == 0 ? given(root(), i) : -1 - i;
      case Kind::kAllgather:
        return given(i / block_, i % block_);
      case Kind::kAlltoall:
        return given(i / block_, rank_ * block_ + i % block_);
    }
    return 0;
  }

  Kind kind_;
  MPI_Comm comm_;
  int rank_ = 0, ranks_ = 1, block_ = 0, round_ = 0;
  bool root_stays_ = false;
  std::vector<int> operand_, result_;
  MPI_Datatype every_other_ = MPI_DATATYPE_NULL;
};

inline int class_of(int error) {
  int error_class = MPI_ERR_OTHER;
  MPI_Error_class(error, &error_class);
  return error_class;
}

/// The calls of one communicator, in rounds that are alike on all ranks.
class Rounds {
 public:
  static constexpr int kWrong = -1;

  Rounds(MPI_Comm comm, Form form) : form_(form) {
    for (const auto& [kind, count] :
         {std::pair(Kind::kAllreduce, kInts), std::pair(Kind::kAllreduce, 2), std::pair(Kind::kBcast, kInts),
          std::pair(Kind::kAllgather, kInts), std::pair(Kind::kAlltoall, kInts)})
      usual_.push_back(std::make_unique<Call>(kind, count, comm));
    // These come with the fault for the first time: what they need is not there yet.
    for (const auto& [kind, count] :
         {std::pair(Kind::kStridedBcast, kInts), std::pair(Kind::kAllreduce, 4 * kInts)})
      new_.push_back(std::make_unique<Call>(kind, count, comm));
  }

  /// MPI_SUCCESS, the class of an error, or kWrong. With `strikes` the fault comes in this round.
  int perform(int round, bool strikes) {
    if (form_ == Form::kBlocking) {
      const bool is_new = round > kCallsBefore && round % 3 == 2;
      return one(
          is_new ? *new_[static_cast<std::size_t>(round / 3 % 2)] : usual(static_cast<std::size_t>(round)),
          round, strikes);
    }
    std::array<Call*, 5> calls{};
    std::size_t count = 0;
    for (; count < 3; ++count)
      calls[count] = &usual(form_ == Form::kPersistent ? count : static_cast<std::size_t>(round) + count);
    if (form_ == Form::kNonblocking && round >= kCallsBefore)
      for (const auto& call : new_) calls[count++] = call.get();
    return several(calls, count, round, strikes);
  }

  /// Before the communicator goes.
  void end() {
    for (MPI_Request& request : made_)
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }

 private:
  Call& usual(std::size_t round) { return *usual_[round % usual_.size()]; }

  static void strike_within() {
    static std::jthread striker;
    striker = std::jthread([] {
      usleep(static_cast<useconds_t>(run.within_us));
      strike();
    });
  }

  static int one(Call& call, int round, bool strikes) {
    call.fill(round);
    if (strikes && run.within_us >= 0) {
      strike_within();
    } else if (strikes) {
      strike();
    }
    const int error = class_of(call.perform());
    if (error != MPI_SUCCESS) return error;
    return call.is_right() ? MPI_SUCCESS : kWrong;
  }

  int several(const std::array<Call*, 5>& calls, std::size_t count, int round, bool strikes) {
    int error = MPI_SUCCESS;
    std::array<int, 5> errors{};
    for (std::size_t i = 0; i < count; ++i) calls[i]->fill(round);
    if (strikes && is_of_resources()) strike();
    if (strikes && run.within_us >= 0) strike_within();
    std::array<MPI_Request, 5> requests;
    requests.fill(MPI_REQUEST_NULL);
    if (form_ == Form::kPersistent && made_[0] == MPI_REQUEST_NULL)
      for (std::size_t i = 0; i < count && error == MPI_SUCCESS; ++i)
        error = class_of(calls[i]->make(&made_[i]));
    if (error != MPI_SUCCESS) return error;
    for (std::size_t i = 0; i < count; ++i)
      errors[i] = form_ == Form::kPersistent ? MPI_Start(&made_[i]) : calls[i]->start(&requests[i]);
    if (strikes && !is_of_resources() && run.within_us < 0) strike();
    usleep(2000);  // the program computes
    for (std::size_t i = 0; i < count; ++i) {
      if (errors[i] == MPI_SUCCESS)
        errors[i] = MPI_Wait(form_ == Form::kPersistent ? &made_[i] : &requests[i], MPI_STATUS_IGNORE);
      const int error_class = class_of(errors[i]);
      if (error_class != MPI_SUCCESS && error == MPI_SUCCESS) error = error_class;
      if (error_class == MPI_SUCCESS && !calls[i]->is_right()) error = kWrong;
    }
    return error;
  }

  Form form_;
  std::vector<std::unique_ptr<Call>> usual_, new_;
  std::array<MPI_Request, 5> made_{MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL,
                                   MPI_REQUEST_NULL};
};

}  // namespace faults

#undef INIT
