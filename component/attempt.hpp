// attempt.hpp -- inside the set-up: parts that may fail on one rank, which all ranks then agree on.
#pragma once

#include <exception>
#include <string>

#include "component/bootstrap.hpp"

namespace loom {

/// Runs `body` unless an earlier part has failed; keeps what went wrong for the agreement.
template <class Body>
void attempt(std::string& cause, Body&& body) {
  if (!cause.empty()) return;
  try {
    body();
  } catch (const BootstrapFailed&) {
    throw;
  } catch (const std::exception& error) {
    cause = error.what();
    if (cause.empty()) cause = "unknown";
  }
}

/// A message that memory was too short for changes nothing of what the ranks have agreed on.
template <class Body>
void say(Body&& body) noexcept {
  try {
    body();
  } catch (const std::exception&) {
  }
}

}  // namespace loom
