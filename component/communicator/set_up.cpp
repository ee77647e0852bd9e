#include "component/communicator/set_up.hpp"

#include "base/quiet_thread.hpp"
#include "component/communicator/communicator.hpp"

namespace loom {

ResumableSetUp::ResumableSetUp(const loom_bootstrap& bootstrap, Process& process, ProgressEngine& engine,
                               Communicator* communicator)
    : bootstrap_(bootstrap), pausing_(bootstrap), process_(process), engine_(engine), linked_(communicator) {
  pausing_.context = this;
  pausing_.exchange = [](void* self, const loom_exchange* wanted, const loom_watch* watch) {
    return static_cast<ResumableSetUp*>(self)->exchange(*wanted, watch);
  };
  pausing_.standing = [](void* self) {
    const loom_bootstrap& carried = static_cast<ResumableSetUp*>(self)->bootstrap_;
    return carried.standing(carried.context);
  };
  if (bootstrap.health != nullptr)
    pausing_.health = [](void* self) {
      const loom_bootstrap& carried = static_cast<ResumableSetUp*>(self)->bootstrap_;
      return carried.health(carried.context);
    };
  thread_ = quiet_thread([this] { run(); });
}

ResumableSetUp::~ResumableSetUp() {
  cancelled_ = true;
  while (state_ != LOOM_SET_UP_DONE) {
    go_.release();
    came_.acquire();
  }
  thread_.join();
}

void ResumableSetUp::run() noexcept {
  go_.acquire();
  try {
    if (cancelled_) throw Cancelled{};
    if (linked_ != nullptr)
      linked_->connect(Bootstrap(pausing_), [this] {
        pause(LOOM_SET_UP_WAITS);
        if (exchanged_ == LOOM_EXCHANGE_LEFT)
          throw ExchangeGivenUp(Error(ErrorCode::kGivenUp, "This rank has given up on this communicator."));
      });
    else
      made_ = Communicator::create(Bootstrap(pausing_), process_, engine_);
    if (made_) made_->exchange_through(Bootstrap(bootstrap_));
  } catch (const Cancelled&) {
  } catch (...) {
    failure_ = std::current_exception();
  }
  state_ = LOOM_SET_UP_DONE;
  came_.release();
}

loom_set_up_state ResumableSetUp::advance(loom_exchanged exchanged, loom_exchange* next) {
  exchanged_ = exchanged;
  go_.release();
  came_.acquire();
  *next = wanted_;
  return state_;
}

std::unique_ptr<Communicator> ResumableSetUp::take() {
  if (failure_) std::rethrow_exception(failure_);
  return std::move(made_);
}

loom_exchanged ResumableSetUp::exchange(const loom_exchange& wanted, const loom_watch* watch) {
  wanted_ = wanted;
  for (pause(LOOM_SET_UP_EXCHANGES); exchanged_ == LOOM_EXCHANGE_PENDING; pause(LOOM_SET_UP_WAITS))
    if (!watch->goes_on(watch->context)) return LOOM_EXCHANGE_GIVEN_UP;
  return exchanged_;
}

/// In the thread: the caller goes on, until it comes by again.
void ResumableSetUp::pause(loom_set_up_state state) {
  state_ = state;
  came_.release();
  go_.acquire();
  if (cancelled_) throw Cancelled{};
}

}  // namespace loom
