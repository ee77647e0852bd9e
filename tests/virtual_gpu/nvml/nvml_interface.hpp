// nvml_interface.hpp -- types and numbers of NVIDIA's management library, after its documentation.
#pragma once

namespace virtual_gpu::nvml {

using Result = int;
inline constexpr Result kSuccess = 0, kUninitialized = 1, kInvalidArgument = 2, kNotSupported = 3,
                        kNotFound = 6, kInsufficientSize = 7, kDriverNotLoaded = 9;

using Device = void*;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device;
  unsigned device_id;  ///< device and vendor
  unsigned subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68);

struct FieldValue {
  unsigned field_id;
  unsigned scope_id;  ///< which link
  long long timestamp, latency_us;
  int value_type;
  Result result;
  union {
    double as_double;
    unsigned as_unsigned;
    unsigned long long as_unsigned64;
  } value;
};
static_assert(sizeof(FieldValue) == 40);
inline constexpr int kUnsignedInt = 1;
inline constexpr unsigned kFieldNvLinkMbps = 90, kFieldNvLinkCount = 91, kFieldC2cCount = 170,
                          kFieldC2cStatus = 171, kFieldC2cMbps = 172;

inline constexpr unsigned kMostNvLinks = 18;
inline constexpr int kRemoteGpu = 0, kRemoteProcessor = 1, kRemoteSwitch = 2;
enum class NvLinkCapability { kPeers = 0, kHost, kPeerAtomics, kHostAtomics, kSliBridge, kValid };

enum class P2pIndex { kRead = 0, kWrite, kNvLink, kAtomics, kPci, kUnknown };
inline constexpr int kP2pOk = 0, kP2pNotByChipset = 1, kP2pNotBySocket = 3, kP2pNotSupported = 5,
                     kP2pUnknown = 6;

}  // namespace virtual_gpu::nvml

#define EXPORT extern "C" __attribute__((visibility("default")))
