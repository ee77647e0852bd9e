// modules.cpp -- modules of PTX, their kernels, and grids of these.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/format.hpp"
#include "tests/virtual_gpu/driver/image.hpp"
#include "tests/virtual_gpu/driver/kernel_time.hpp"
#include "tests/virtual_gpu/driver/memory.hpp"
#include "tests/virtual_gpu/driver/module.hpp"

using namespace virtual_gpu;

namespace {

/// CUDA 13.0 brought PTX 9.0; 12.0 to 12.9 brought 8.0 to 8.8, with no step at 12.6; 11.0 to 11.8 7.0 to 7.8.
unsigned newest_ptx(int driver) {
  const int major = driver / 1000, minor = driver % 1000 / 10;
  if (major >= 13) return static_cast<unsigned>((major - 4) * 10 + minor);
  if (major == 12) return static_cast<unsigned>(80 + (minor >= 6 ? minor - 1 : minor));
  return static_cast<unsigned>(70 + minor);
}

/// Of "sm_90", "sm_90a" or "sm_100f": 90, and whether it is for that architecture alone.
std::pair<int, bool> architecture_of(const std::string& target) {
  int number = 0;
  char suffix = '\0';
  std::sscanf(target.c_str(), "sm_%d%c", &number, &suffix);
  return {number, suffix != '\0'};
}

/// A GPU takes PTX of its own compute capability and of earlier ones.
bool runs(const std::string& target, const machine::Gpu& gpu) {
  const auto [architecture, specific] = architecture_of(target);
  const int mine = gpu.capability;
  return specific ? architecture == mine : architecture <= mine;
}

/// The PTX that the virtual GPU runs, of all that an image holds: the last that its GPU may run. A GPU would
/// prefer machine code of its architecture, which the virtual one has no use for.
Result choose_text(const void* image, const machine::Gpu& gpu, std::string& text) {
  if (std::memcmp(image, "\177ELF", 4) == 0) return say(kNoBinaryForGpu, "machine code without PTX");
  if (!is_container(image)) {
    text = static_cast<const char*>(image);
    return kSuccess;
  }
  try {
    const Image* best = nullptr;
    const std::vector<Image> images = images_of(image);
    for (const Image& each : images)
      if (each.is_ptx && each.architecture <= gpu.capability &&
          (best == nullptr || each.architecture >= best->architecture))
        best = &each;
    if (best == nullptr) return say(kNoBinaryForGpu, "an image without PTX that the GPU may run");
    text = text_of(*best);
  } catch (const std::runtime_error& error) {
    return say(kInvalidImage, error.what());
  }
  return kSuccess;
}

/// Memory for a module's variables, in one piece each.
Result place_variables(Call& call, Module& module, const ptx::Module& read) {
  for (const ptx::Variable& variable : read.variables) {
    if (variable.space != ptx::Space::kGlobal && variable.space != ptx::Space::kConst) continue;
    if (variable.bytes == 0) return say(kInvalidPtx, "an extern variable");
    const Uuid& gpu = (*call.driver.gpus)[call.context->device].uuid;
    const std::shared_ptr<MemoryFile> file = MemoryFile::create(variable.bytes, 0, gpu, false);
    AllocationPtr allocation;
    if (file == nullptr || add_allocation(call.driver, file, Kind::kModule, call.context,
                                          call.context->device, allocation) != kSuccess)
      return kOutOfMemory;
    std::ranges::copy(variable.initial, file->data());  // all else is 0
    module.variables[variable.name] = allocation;
  }
  return kSuccess;
}

void drop_variables(Driver& d, Module& module) {
  for (const auto& [name, allocation] : module.variables)
    if (d.memory.at(allocation->begin) == allocation) d.release(allocation);
}

struct Loaded {
  unsigned version;
  std::string target;
  std::shared_ptr<const run::Program> program;
};

Result load(Call& call, Module** out, const void* image) {
  Driver& d = call.driver;
  const machine::Gpu& gpu = (*d.gpus)[call.context->device];
  if (out == nullptr || image == nullptr) return kInvalidValue;
  if (const Result failure = d.fails(is_container(image) ? "machine code" : "PTX"); failure != kSuccess)
    return failure;
  auto module = std::make_shared<Module>(Module{.context = call.context});
  std::string text;
  if (const Result result = choose_text(image, gpu, text); result != kSuccess) return result;
  try {
    // Without variables a program is the same in every context, and reading it takes long.
    static auto* const programs = new std::map<std::string, Loaded>;
    auto known = programs->find(text);
    const ptx::Module read = known == programs->end() ? ptx::parse(text) : ptx::Module{};
    Loaded loaded =
        known == programs->end() ? Loaded{read.major * 10 + read.minor, read.target, nullptr} : known->second;
    module->version = loaded.version;
    if (loaded.version > newest_ptx(static_cast<int>(number("VIRTUAL_GPU_DRIVER_VERSION", 13000))))
      return say(kUnsupportedPtxVersion, loom::format("PTX {}.{}", loaded.version / 10, loaded.version % 10));
    if (!runs(loaded.target, gpu))
      return say(is_container(image) ? kNoBinaryForGpu : kInvalidPtx, "PTX for " + loaded.target);
    if (loaded.program == nullptr) {
      if (const Result result = place_variables(call, *module, read); result != kSuccess) {
        drop_variables(d, *module);
        return result;
      }
      loaded.program = std::make_shared<run::Program>(
          read, [&](const ptx::Variable& variable) { return module->variables.at(variable.name)->begin; });
      if (module->variables.empty()) (*programs)[text] = loaded;
    }
    module->program = loaded.program;
  } catch (const ptx::Error& error) {
    drop_variables(d, *module);
    // Not only where verbose: what the virtual GPU does not know, a GPU may.
    std::fprintf(stderr, "virtual GPU: PTX is not accepted: %s\n", error.what());
    return kInvalidPtx;
  }
  *out = module.get();
  d.modules[*out] = std::move(module);
  return kSuccess;
}

Module* find_module(const Call& call, void* handle) {
  const auto found = call.driver.modules.find(handle);
  return found == call.driver.modules.end() ? nullptr : found->second.get();
}
Function* find_function(const Call& call, void* handle) {
  const auto found = call.driver.functions.find(handle);
  return found == call.driver.functions.end() ? nullptr : found->second;
}

unsigned most_threads(const Function& function) {
  return function.entry->most_threads ? static_cast<unsigned>(function.entry->most_threads->count())
                                      : kMostThreadsOfBlock;
}
/// The most that its bounds allow: nothing here asks ptxas.
unsigned registers_of(const Function& function) {
  return registers_of_thread(most_threads(function) * function.entry->least_blocks);
}
BlockNeeds needs_of(const Function& function, unsigned threads, std::size_t dynamic_bytes) {
  return {threads, registers_of(function), function.entry->shared_bytes + dynamic_bytes};
}

/// How memory looks to a kernel of a context. Keeps what the kernel has found, even when it is unmapped.
class KernelSpace final : public memory::Space {
 public:
  KernelSpace(Driver& driver, const Context& context) : driver_(driver), context_(context) {}

  memory::Region find(std::uint64_t address) const override {
    const std::lock_guard lock(driver_.mutex);
    const AllocationPtr in = driver_.memory.holding(address);
    if (in == nullptr || !may(*in)) return {};
    kept_.insert(in);
    memory::Region region{.begin = in->begin, .bytes = in->bytes, .host = in->at(in->begin)};
    region.path =
        in->on_host() ? memory::Path::kHost : driver_.gpus->path(context_.device, in->file->shared().gpu);
    const Uuid* const gpu = in->on_host() ? nullptr : &in->file->shared().gpu;
    driver_.gpus->count_in(region, context_.device, gpu);
    region.place = driver_.gpus->place_of_memory(gpu, context_.device);
    region.this_gpu_only = is_private(*in);
    if (in->kind == Kind::kVirtual) region.writable = (in->access.at(context_.device) & 2) != 0;
    if (in->file) {
      region.written = in->file->written();
      region.locks = &in->file->shared().locks;
      region.arrivals = in->file->arrivals();
    }
    return region;
  }
  std::uint64_t generation() const noexcept override { return driver_.memory.generation(); }

 private:
  bool is_private(const Allocation& in) const {
    if (in.kind != Kind::kDevice && in.kind != Kind::kPool && in.kind != Kind::kModule) return false;
    const auto reaches = [&](const Context* other) { return other->peers.contains(in.context); };
    return !in.exported && std::ranges::none_of(driver_.contexts, reaches);
  }
  bool may(const Allocation& in) const {
    switch (in.kind) {
      case Kind::kRegistered:  // that unmapped memory is out of reach is inferred: GPUs may be kinder
        return (in.flags & kDeviceMap) != 0;
      case Kind::kHost:
      case Kind::kManaged:
        return true;
      case Kind::kVirtual: {
        const auto access = in.access.find(context_.device);
        return access != in.access.end() && access->second != 0;
      }
      case Kind::kPool:
        return in.device == context_.device;
      case Kind::kPeer:
        return in.context == &context_ && in.file->shared().freed.load(std::memory_order_acquire) == 0;
      case Kind::kDevice:
      case Kind::kModule:
        return in.context == &context_ || context_.peers.contains(in.context);
    }
    return false;
  }

  Driver& driver_;
  const Context& context_;
  mutable std::set<AllocationPtr> kept_;
};

Result error_of(run::Fault::Kind kind) {
  switch (kind) {
    case run::Fault::Kind::kMisaligned:
      return kMisalignedAddress;
    case run::Fault::Kind::kForeignAddress:
    case run::Fault::Kind::kReadOnly:
      return kIllegalAddress;
    default:
      return kLaunchFailed;
  }
}

run::Settings settings(std::uint64_t seed, run::Residency& residency) {
  const std::string mode = variable("VIRTUAL_GPU_MODE").value_or("");
  const auto has = [&](const char* word) { return mode.find(word) != std::string::npos; };
  return {.meeting = has("votes") ? run::Meeting::kVotesOnly : run::Meeting::kPostDominators,
          .random_order = has("random"),
          .weak_memory = has("weak"),
          .seed = seed,
          .residency = &residency,
          .on_patience_lost =
              [](const std::string& text) { std::fprintf(stderr, "virtual GPU: %s\n", text.c_str()); },
          .patience = std::chrono::milliseconds(number("VIRTUAL_GPU_PATIENCE_MS", 30'000))};
}

/// One grid, from when it is in its stream to its end.
struct Grid {
  Driver& driver;
  Context& context;
  std::shared_ptr<const run::Program> program;
  const run::Entry& entry;
  run::Launch launch;
  std::vector<std::byte> parameters;
  BlockNeeds needs;
  std::uint64_t seed;

  void perform(Work& work) {
    Multiprocessors& gpu = *driver.multiprocessors[static_cast<std::size_t>(context.device)];
    Multiprocessors::Room room(gpu, needs);
    launch.parameters = parameters;
    KernelSpace space(driver, context);
    run::Settings how = settings(seed, room);
    std::optional<GridTime> time;
    if (machine::VirtualClock* const clock = driver.gpus->clock(); clock != nullptr) {
      time.emplace(*clock, driver.gpus->place_of_gpu(context.device), work.begin());
      how.observe = [&](auto view) { return timed_view(*time, space, std::move(view)); };
    }
    try {
      run::run(*program, entry, launch, space, how, context.stop);
      if (time) work.end = time->end;
    } catch (const run::Fault& fault) {
      if (fault.kind() == run::Fault::Kind::kStopped)  // with its context
        std::fprintf(stderr, "virtual GPU: a kernel ends before its time: %s\n", fault.what());
      else
        fail(error_of(fault.kind()), fault.what());
    } catch (const std::exception& error) {
      fail(kLaunchFailed, error.what());
    }
  }

 private:
  /// The context's other kernels end, too.
  void fail(Result error, const std::string& what) {
    const std::lock_guard lock(driver.mutex);
    if (context.sticky != kSuccess) return;
    context.sticky = error;
    context.stop = true;
    std::fprintf(stderr, "virtual GPU: error %d: %s\n", error, what.c_str());
  }
};

/// As the entry lays them out, from the values that are pointed to, or from the buffer that is given.
Result take_parameters(const run::Entry& entry, void** values, void** extra, std::vector<std::byte>& out) {
  out.resize(entry.parameter_bytes);
  if (values != nullptr && extra != nullptr) return kInvalidValue;
  if (extra == nullptr) {
    if (values == nullptr) return entry.parameters.empty() ? kSuccess : kInvalidValue;
    for (std::size_t i = 0; i < entry.parameters.size(); ++i) {
      if (values[i] == nullptr) return kInvalidValue;
      std::memcpy(out.data() + entry.parameters[i].offset, values[i], entry.parameters[i].bytes);
    }
    return kSuccess;
  }
  const void* buffer = nullptr;
  std::size_t bytes = 0;
  for (; extra[0] != nullptr; extra += 2) {  // CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE
    if (extra[0] == reinterpret_cast<void*>(1)) buffer = extra[1];
    if (extra[0] == reinterpret_cast<void*>(2)) std::memcpy(&bytes, extra[1], sizeof(bytes));
  }
  if (buffer == nullptr || bytes < out.size()) return kInvalidValue;
  std::memcpy(out.data(), buffer, out.size());
  return kSuccess;
}

/// -1: there is no such attribute.
int attribute_of(const Function& function, int which) {
  switch (which) {
    case 0:
      return static_cast<int>(most_threads(function));
    case 1:
      return static_cast<int>(function.entry->shared_bytes);
    case 2:
      return 0;
    case 3:
      return static_cast<int>(function.entry->local_bytes);
    case 4:
      return static_cast<int>(registers_of(function));
    case 5:
    case 6:
      return static_cast<int>(function.module->version);  // PTX, and what it becomes
    case 7:
      return 0;
    case 8:
      return static_cast<int>(function.most_dynamic);
    default:
      return -1;
  }
}

}  // namespace

EXPORT int cuModuleLoadData(Module** out, const void* image) {
  return enter("cuModuleLoadData", kInContext | kUnsafe, [&](Call& call) { return load(call, out, image); });
}
EXPORT int cuModuleLoadDataEx(Module** out, const void* image, unsigned, int*, void**) {
  return enter("cuModuleLoadDataEx", kInContext | kUnsafe,
               [&](Call& call) { return load(call, out, image); });
}
EXPORT int cuModuleLoadFatBinary(Module** out, const void* image) {
  return enter("cuModuleLoadFatBinary", kInContext | kUnsafe, [&](Call& call) -> Result {
    return image != nullptr && is_container(image) ? load(call, out, image) : kInvalidValue;
  });
}
/// Waits for the context, whose kernels may be of the module (inferred).
EXPORT int cuModuleUnload(void* handle) {
  return enter("cuModuleUnload", kInContext | kUnsafe, [&](Call& call) -> Result {
    if (find_module(call, handle) == nullptr) return kInvalidHandle;
    const Result result = call.wait_for_all(*call.context);
    if (Module* const module = find_module(call, handle); module != nullptr) {
      drop_variables(call.driver, *module);
      for (const auto& [name, function] : module->functions) call.driver.functions.erase(function.get());
      auto node = call.driver.modules.extract(handle);
      call.driver.ended_handles.emplace_back(std::move(node.mapped()));
    }
    return result;
  });
}
EXPORT int cuModuleGetFunction(Function** out, void* handle, const char* name) {
  return enter("cuModuleGetFunction", kInContext, [&](Call& call) -> Result {
    Module* const module = find_module(call, handle);
    if (module == nullptr) return kInvalidHandle;
    if (out == nullptr || name == nullptr) return kInvalidValue;
    const run::Entry* const entry = module->program->find(name);
    if (entry == nullptr) return kNotFound;
    auto& function = module->functions[name];
    if (function == nullptr) {
      function = std::make_unique<Function>(Function{.module = module, .entry = entry});
      call.driver.functions[function.get()] = function.get();
    }
    *out = function.get();
    return kSuccess;
  });
}
EXPORT int cuModuleGetGlobal_v2(Address* out, std::size_t* bytes, void* handle, const char* name) {
  return enter("cuModuleGetGlobal", kInContext, [&](Call& call) -> Result {
    const Module* const module = find_module(call, handle);
    if (module == nullptr) return kInvalidHandle;
    if (name == nullptr || (out == nullptr && bytes == nullptr)) return kInvalidValue;
    const auto found = module->variables.find(name);
    if (found == module->variables.end()) return kNotFound;
    if (out != nullptr) *out = found->second->begin;
    if (bytes != nullptr) *bytes = found->second->bytes;
    return kSuccess;
  });
}

EXPORT int cuFuncGetAttribute(int* out, int which, void* handle) {
  return enter("cuFuncGetAttribute", kInContext, [&](Call& call) -> Result {
    const Function* const function = find_function(call, handle);
    if (function == nullptr) return kInvalidHandle;
    const int value = attribute_of(*function, which);
    if (out == nullptr || value < 0) return kInvalidValue;
    *out = value;
    return kSuccess;
  });
}
/// More dynamic shared memory than a kernel has without asking.
EXPORT int cuFuncSetAttribute(void* handle, int which, int value) {
  return enter("cuFuncSetAttribute", kInContext, [&](Call& call) -> Result {
    Function* const function = find_function(call, handle);
    if (function == nullptr) return kInvalidHandle;
    if (which == 9) return value >= -1 && value <= 100 ? kSuccess : kInvalidValue;  // of the L1 cache
    if (which != 8 || value < 0 ||
        static_cast<std::size_t>(value) + function->entry->shared_bytes > kMostSharedOfBlock)
      return kInvalidValue;
    function->most_dynamic = static_cast<std::size_t>(value);
    return kSuccess;
  });
}
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* out, void* handle, int threads,
                                                       std::size_t dynamic_bytes) {
  return enter("cuOccupancyMaxActiveBlocksPerMultiprocessor", kInContext, [&](Call& call) -> Result {
    const Function* const function = find_function(call, handle);
    if (function == nullptr) return kInvalidHandle;
    if (out == nullptr || threads < 1) return kInvalidValue;
    const auto count = static_cast<unsigned>(threads);
    const bool fits = count <= most_threads(*function) && dynamic_bytes <= function->most_dynamic;
    *out = fits ? static_cast<int>(blocks_of_multiprocessor(needs_of(*function, count, dynamic_bytes))) : 0;
    return kSuccess;
  });
}

EXPORT int cuLaunchKernel(void* handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream_handle,
                          void** values, void** extra) {
  return enter("cuLaunchKernel", kInContext, [&](Call& call) -> Result {
    Driver& d = call.driver;
    const Function* const function = find_function(call, handle);
    const auto stream = call.stream(stream_handle);
    if (function == nullptr || stream == nullptr || stream->context != function->module->context)
      return say(kInvalidHandle, "a kernel, its stream or its context is another one's");
    if (function->module->context != call.context) return kInvalidContext;
    const run::Dim grid{grid_x, grid_y, grid_z}, block{block_x, block_y, block_z};
    if (grid.count() == 0 || block.count() == 0 || grid_x > 0x7fffffff || grid_y > 65535 || grid_z > 65535 ||
        block_x > kMostThreadsOfBlock || block_y > kMostThreadsOfBlock || block_z > 64 ||
        block.count() > kMostThreadsOfBlock || shared_bytes > function->most_dynamic)
      return say(kInvalidValue, "a grid is larger than a GPU has, or empty");
    // By the documentation of .maxntid and of CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK; which error is
    // inferred.
    if (block.count() > most_threads(*function)) return say(kInvalidValue, "a block has too many threads");
    const BlockNeeds needs = needs_of(*function, static_cast<unsigned>(block.count()), shared_bytes);
    if (blocks_of_multiprocessor(needs) == 0) return kLaunchOutOfResources;
    auto launched = std::make_shared<Grid>(Grid{.driver = d,
                                                .context = *call.context,
                                                .program = function->module->program,
                                                .entry = *function->entry,
                                                .launch = {grid, block, shared_bytes, {}},
                                                .parameters = {},
                                                .needs = needs,
                                                .seed = d.engine.random()});
    if (const Result result = take_parameters(*function->entry, values, extra, launched->parameters);
        result != kSuccess)
      return say(result, "a kernel's parameters are missing");
    const Result result = enqueue(
        call, *stream, [launched](Work& work) { launched->perform(work); }, kLaunch);
    if (result != kSuccess) return result;
    ++d.counts.kernels;
    static const bool blocks = number("CUDA_LAUNCH_BLOCKING", 0) != 0;
    if (!blocks || stream->capture != nullptr) return kSuccess;
    call.wait(WorkPtr(stream->last));
    return call.context->sticky;
  });
}
