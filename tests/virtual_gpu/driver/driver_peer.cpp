// driver_peer -- another process with the virtual driver, for tests: performs the commands that it reads, one
// on each line, and answers each with its result and a value.
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/virtual_gpu/driver/cuda_interface.hpp"
#include "tests/virtual_gpu/driver/virtual_library.hpp"

namespace {

struct Handle {
  unsigned char bytes[64];
};

std::string to_text(const Handle& handle) {
  std::string text;
  for (const unsigned char byte : handle.bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", byte);
    text += digits;
  }
  return text;
}
Handle from_text(const char* text) {
  Handle handle{};
  for (unsigned i = 0; i < 64; ++i) {
    unsigned byte = 0;
    std::sscanf(text + 2 * i, "%2x", &byte);
    handle.bytes[i] = static_cast<unsigned char>(byte);
  }
  return handle;
}

}  // namespace

int main() {
  using virtual_gpu::Address;
  const virtual_gpu::Library cuda(VIRTUAL_GPU_LIBRARY);
  cuda.call("cuCtxPushCurrent_v2", cuda.context(0));
  char line[256];
  while (std::fgets(line, sizeof(line), stdin) != nullptr) {
    char command[32] = "", text[160] = "";
    unsigned long address = 0, bytes = 0, value = 0;
    std::string answer;
    int result = -1;
    if (std::sscanf(line, "alloc %lu", &bytes) == 1) {
      Address made = 0;
      result = cuda.call("cuMemAlloc_v2", &made, std::size_t{bytes});
      answer = std::to_string(made);
    } else if (std::sscanf(line, "handle %lu", &address) == 1) {
      Handle handle{};
      result = cuda.call("cuIpcGetMemHandle", &handle, Address{address});
      answer = to_text(handle);
    } else if (std::sscanf(line, "open %159s", text) == 1) {
      Address mapped = 0;
      result = cuda.call("cuIpcOpenMemHandle_v2", &mapped, from_text(text), 1U);
      answer = std::to_string(mapped);
    } else if (std::sscanf(line, "close %lu", &address) == 1) {
      result = cuda.call("cuIpcCloseMemHandle", Address{address});
    } else if (std::sscanf(line, "fill %lu %lu %lu", &address, &value, &bytes) == 3) {
      cuda.call("cuMemsetD8_v2", Address{address}, static_cast<unsigned char>(value), std::size_t{bytes});
      result = cuda.call("cuCtxSynchronize");
    } else if (std::sscanf(line, "read %lu", &address) == 1) {
      unsigned char found = 0;
      result = cuda.call("cuMemcpyDtoH_v2", static_cast<void*>(&found), Address{address}, std::size_t{1});
      answer = std::to_string(found);
    } else if (std::sscanf(line, "free %lu", &address) == 1) {
      result = cuda.call("cuMemFree_v2", Address{address});
    } else if (std::sscanf(line, "device %lu", &address) == 1) {
      int device = -9;
      result = cuda.call("cuPointerGetAttribute", static_cast<void*>(&device), 9, Address{address});
      answer = std::to_string(device);
    } else if (std::strncmp(line, "uuid", 4) == 0) {
      Handle handle{};
      result = cuda.call("cuDeviceGetUuid_v2", &handle.bytes[0], 0);
      answer = to_text(handle);
    } else if (std::strncmp(line, "pidfd", 5) == 0) {
      const long self = ::syscall(SYS_pidfd_open, ::getpid(), 0U);
      result = ::syscall(SYS_pidfd_getfd, static_cast<int>(self), 0, 0U) >= 0 ? 0 : errno;
    } else {
      std::sscanf(line, "%31s", command);
      std::fprintf(stderr, "driver_peer: no such command: %s\n", command);
    }
    std::printf("%d %s\n", result, answer.c_str());
    std::fflush(stdout);
  }
}
