// virtual_gpu.hpp -- the virtual GPU: a libcuda.so.1 without a GPU, as strict as NVIDIA's driver. Here are
// the variables that say what it is like, and what tests may ask beyond CUDA's interface; found with dlsym.
//
// Device memory is mapped twice: where the program has its address, no CPU may touch it; where the driver
// knows it, copies and kernels do. Work in streams goes on by itself, in any legal order, a random while
// later; whoever waits for it hurries it. Kernels run from their PTX. Memory that is freed is reused soon.
//
// Variables, read by each process when it initialises the driver:
//
// clang-format off
//   VIRTUAL_GPU_MACHINE=FILE         which GPUs there are (machine/machine.hpp); all processes with this file
//                                    have the same ones, by UUID. Without it two
//   VIRTUAL_GPU_SHARED=NAME          all processes with this name have the same GPUs; else, without a machine,
//                                    each has its own
//   VIRTUAL_GPU_STATE=FOLDER         what processes with the same GPUs have in common (machine/shared_state.hpp)
//   VIRTUAL_GPU_TRAFFIC=FILE         the last of them writes there what each link has carried ("-": to stderr)
//   VIRTUAL_GPU_OWN_TRAFFIC=1        also what kernels load and store in memory of their own GPU
//   VIRTUAL_GPU_MPS=0|1              what a driver answers that has heard of MPS; with 1, kernels of several
//                                    processes are on a GPU at once, as far as it has room; else they take turns
//   VIRTUAL_GPU_MULTIPROCESSORS=N    of each GPU
//   VIRTUAL_GPU_CAPABILITY=90        compute capability of each GPU, major and minor digit
//   VIRTUAL_GPU_DRIVER_VERSION=13000 what cuDriverGetVersion says; which PTX is too new follows from it
//   VIRTUAL_GPU_MEMORY_MIB=N         memory of each GPU
//   VIRTUAL_GPU_NO_IPC=get|open|attribute   CUDA's IPC fails there, or so that its attribute says so
//   VIRTUAL_GPU_PEERS=N              so many other GPUs at the most give their memory to one, by CUDA's IPC
//   VIRTUAL_GPU_VIRTUAL_MEMORY=1     virtual memory management is offered
//   VIRTUAL_GPU_NO_PIDFD=1           the kernel refuses pidfd_getfd, as where Yama restricts ptrace (by seccomp)
//   VIRTUAL_GPU_NETWORK=flushed|never   what the network writes becomes visible when the driver is told to
//                                    take it in, or never; else at once
//   VIRTUAL_GPU_GBPS=X               each stream copies X GB/s, while the CPU does something else
//   VIRTUAL_GPU_TIME=1               virtual time is kept; set for all processes of a machine, or for none
//   VIRTUAL_GPU_DELAY_US=N           work begins up to N us after it could, unless somebody waits (2000)
//   VIRTUAL_GPU_PATIENCE_MS=N        a kernel that waits for so long says where (30,000), and goes on waiting
//   VIRTUAL_GPU_SEED=N               of everything that is random (1)
//   VIRTUAL_GPU_MODE=WORDS           how kernels run: "weak" (memory order), "random" (order of warps),
//                                    "votes" (lanes that parted meet at votes alone); joined by commas
//   VIRTUAL_GPU_WRITTEN=1            kernels that read memory which nobody has written fail
//   VIRTUAL_GPU_FAIL=F:N:E,...       see virtual_gpu_fail
//   CUDA_LAUNCH_BLOCKING=1           as CUDA has it: a launch waits for its kernel
//   VIRTUAL_GPU_VERBOSE=1            calls that fail are written to stderr, with the cause
// clang-format on
//
// Virtual time is what the machine would take, by machine/figures.hpp and clock.hpp: CUDA's events show it,
// and virtual_gpu_now. Each process has a clock, from 0 at cuInit. It knows launches, copies, fills, the
// bandwidth of each link among all processes of the machine, latency, and what kernels wait for by words that
// others store strongly (driver/kernel_time.hpp). Not known, and taken for nothing: instructions, so that a
// kernel of few blocks reaches the rate of its links; caches; what the program does between its calls; that
// it waits for another process by host memory or MPI, unless it says so by virtual_gpu_wait_until. Of
// transfers that want a link at the same time, the one that asks first here comes first: two runs differ by
// some per cent.
#pragma once

#include <cstddef>
#include <cstdint>

struct VirtualGpuCounts {
  std::uint64_t copies;  ///< asynchronous ones, as the library under test makes them
  std::uint64_t bytes;   ///< that these copy
  std::uint64_t synchronisations;
  std::uint64_t foreign_context;  ///< copies of a device's memory while another's context was current
  std::uint64_t allocations;      ///< alive, and mappings; for each, the driver has a file open
  std::uint64_t peers;            ///< of these, memory of other processes, by CUDA's IPC
  std::uint64_t handles;          ///< of virtual memory, alive; likewise
  std::uint64_t reservations;     ///< of addresses, alive
  std::uint64_t registered, most_registered;  ///< bytes of host memory, now and at the most
  std::uint64_t looks;                        ///< questions of where a pointer points
  std::uint64_t kernels;                      ///< that have been launched
  std::uint64_t streams;                      ///< and events, alive
};

extern "C" {
void virtual_gpu_read(VirtualGpuCounts*);
/// The call of this function (its name in CUDA's documentation) after `after` more of it,
/// and all that follow, fail with the error; 0: none fails; -N: the process dies of signal N before the call
/// does anything. "machine code" and "PTX" are the loading of such an image.
void virtual_gpu_fail(const char* function, int after, int error);
/// A network port reads and writes memory of a device of this process (network/virtual_port.cpp).
int virtual_gpu_network_read(std::uint64_t from, void* to, std::size_t bytes);
int virtual_gpu_network_write(std::uint64_t to, const void* from, std::size_t bytes);
/// Virtual time of this process in seconds. 0: the driver is not initialised. Less: nobody keeps it.
double virtual_gpu_now(void);
/// The program has learned of what happened then, in another process: it is no earlier now.
void virtual_gpu_wait_until(double seconds);
/// Bytes that all processes of the machine have sent over the link, once they have waited for what they
/// enqueued; in this direction, with names as in the table of VIRTUAL_GPU_TRAFFIC. ~0: there is no such link.
std::uint64_t virtual_gpu_carried(const char* from, const char* to);
}
