// fuzz_hosts.cpp -- any bytes as what a host tells of itself: they give a sound NodeSummary or GpuHost, or an
// Error, never a crash, and never more memory than such bytes can mean. Without libFuzzer tests/replay.cpp
// runs it over files.
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "connect/gpu_host.hpp"
#include "connect/summary.hpp"
#include "tests/must.hpp"

namespace {

using namespace loom;
using namespace loom::connect;

template <class Body>
void try_to(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    must(error.code() == ErrorCode::kInternal, error.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  try_to([&] {
    const NodeSummary summary = decode(bytes);
    must(decode(encode(summary)) == summary, "a summary is not what is written of it");
  });
  try_to([&] {
    const GpuHost host = decode_gpu_host(bytes);
    const std::vector<std::byte> written = encode(host);
    must(encode(decode_gpu_host(written)) == written, "a host is not what is written of it");
  });
  return 0;
}
