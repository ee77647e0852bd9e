// failure.hpp -- turns an exception into what the C side knows: a result, and a message for the user.
#pragma once

#include <exception>
#include <new>

#include "base/error.hpp"
#include "component/core.h"
#include "component/setup/bootstrap.hpp"

namespace loom {

constexpr int to_result(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kOutOfMemory:
      return LOOM_ERR_OUT_OF_MEMORY;
    case ErrorCode::kSystem:
      return LOOM_ERR_SYSTEM;
    case ErrorCode::kUnreachable:
      return LOOM_ERR_UNREACHABLE;
    case ErrorCode::kPeerFailed:
    case ErrorCode::kGivenUp:
      return LOOM_ERR_PEER_FAILED;
    case ErrorCode::kRevoked:
      return LOOM_ERR_REVOKED;
    case ErrorCode::kTimeout:
      return LOOM_ERR_TIMEOUT;
    case ErrorCode::kTruncated:
      return LOOM_ERR_TRUNCATED;
    case ErrorCode::kMismatch:
      return LOOM_ERR_MISMATCH;
    case ErrorCode::kDevice:
      return LOOM_ERR_DEVICE;
    case ErrorCode::kBadInput:
      return LOOM_ERR_SYSTEM;
    case ErrorCode::kInternal:
      return LOOM_ERR_INTERNAL;
  }
  return LOOM_ERR_INTERNAL;
}

constexpr loom_message message_for(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kPeerFailed:
      return LOOM_MESSAGE_PEER_FAILED;
    case ErrorCode::kGivenUp:
      return LOOM_MESSAGE_GIVEN_UP;
    case ErrorCode::kRevoked:
      return LOOM_MESSAGE_REVOKED;
    case ErrorCode::kTimeout:
      return LOOM_MESSAGE_TIMEOUT;
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kSystem:
      return LOOM_MESSAGE_RESOURCES;
    case ErrorCode::kDevice:
      return LOOM_MESSAGE_DEVICE;
    case ErrorCode::kTruncated:
    case ErrorCode::kMismatch:
      return LOOM_MESSAGE_MISMATCH;
    case ErrorCode::kUnreachable:  // this and the next: the set-up deals with these, by an agreement
    case ErrorCode::kBadInput:
    case ErrorCode::kInternal:
      return LOOM_MESSAGE_INTERNAL;
  }
  return LOOM_MESSAGE_INTERNAL;
}

/// For a catch (...): calls show(message, cause) for the exception being caught, and returns its result.
template <class Show>
int result_of_exception(Show&& show) noexcept {
  try {
    throw;
  } catch (const Truncated& truncated) {
    show(LOOM_MESSAGE_TRUNCATED, truncated.what());
    return LOOM_TRUNCATED;
  } catch (const Error& error) {
    show(message_for(error.code()), error.what());
    return to_result(error.code());
  } catch (const BootstrapFailed& error) {
    show(LOOM_MESSAGE_BOOTSTRAP, error.what());
    return LOOM_ERR_SYSTEM;
  } catch (const std::bad_alloc&) {
    show(LOOM_MESSAGE_RESOURCES, "There is no memory left.");
    return LOOM_ERR_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    show(LOOM_MESSAGE_INTERNAL, error.what());
    return LOOM_ERR_INTERNAL;
  } catch (...) {
    show(LOOM_MESSAGE_INTERNAL, "An unknown exception.");
    return LOOM_ERR_INTERNAL;
  }
}

}  // namespace loom
