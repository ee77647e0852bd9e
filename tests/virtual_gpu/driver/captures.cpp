// captures.cpp -- streams that record operations instead of doing them. Graphs can be made and destroyed, not
// launched: what matters here is what a capture forbids others to do.
#include <algorithm>

#include "tests/virtual_gpu/driver/driver.hpp"

using namespace virtual_gpu;

namespace {

/// Whether every node comes before the end of the stream where the capture began.
bool is_joined(const Capture& capture) {
  std::vector<bool> reached(capture.nodes.size());
  std::vector<std::size_t> next = capture.origin->tail;
  while (!next.empty()) {
    const std::size_t node = next.back();
    next.pop_back();
    if (reached[node]) continue;
    reached[node] = true;
    next.insert(next.end(), capture.nodes[node].begin(), capture.nodes[node].end());
  }
  return std::ranges::all_of(reached, std::identity());
}

}  // namespace

EXPORT int cuStreamBeginCapture_v2(void* handle, CaptureMode mode) {
  return enter("cuStreamBeginCapture", kInContext, [&](Call& call) -> Result {
    const auto stream = call.stream(handle);
    if (stream == nullptr) return kInvalidHandle;
    if (static_cast<int>(mode) < 0 || mode > CaptureMode::kRelaxed) return kInvalidValue;
    if (stream == stream->context->legacy) return kCaptureUnsupported;
    if (stream->capture != nullptr) return kInvalidValue;  // inferred
    stream->capture = std::make_shared<Capture>(Capture{.origin = stream.get(),
                                                        .context = stream->context,
                                                        .mode = mode,
                                                        .thread = std::this_thread::get_id(),
                                                        .id = ++call.driver.last_id});
    stream->tail.clear();
    call.driver.captures.push_back(stream->capture);
    return kSuccess;
  });
}
EXPORT int cuStreamEndCapture(void* handle, Graph** out) {
  return enter("cuStreamEndCapture", kInContext, [&](Call& call) -> Result {
    Driver& d = call.driver;
    const auto stream = call.stream(handle);
    if (stream == nullptr || out == nullptr) return kInvalidHandle;
    *out = nullptr;
    const auto capture = stream->capture;
    if (capture == nullptr || capture->origin != stream.get()) return kCaptureUnmatched;
    if (capture->mode != CaptureMode::kRelaxed && capture->thread != std::this_thread::get_id())
      return kCaptureWrongThread;
    const bool joined = is_joined(*capture);
    for (const Context* const context : d.contexts)  // streams of other GPUs may have joined
      for (const auto& each : context->streams)
        if (each->capture == capture) each->capture = nullptr;
    std::erase(d.captures, capture);
    if (!capture->valid) return kCaptureInvalidated;
    if (!joined) return say(kCaptureUnjoined, "work of a capture is not joined to its first stream");
    auto graph = std::make_unique<Graph>(Graph{capture->nodes.size()});
    *out = graph.get();
    d.graphs[*out] = std::move(graph);
    return kSuccess;
  });
}
EXPORT int cuStreamIsCapturing(void* handle, CaptureStatus* status) {
  return enter("cuStreamIsCapturing", kInContext, [&](Call& call) -> Result {
    const auto stream = call.stream(handle);
    if (stream == nullptr || status == nullptr) return kInvalidHandle;
    if (stream == stream->context->legacy)  // the only call that leaves the capture as it is
      for (const auto& capture : call.driver.captures)
        if (capture->context == stream->context && capture->origin->blocking) return kCaptureImplicit;
    *status = stream->capture == nullptr ? CaptureStatus::kNone
              : stream->capture->valid   ? CaptureStatus::kActive
                                         : CaptureStatus::kInvalidated;
    return kSuccess;
  });
}
EXPORT int cuThreadExchangeStreamCaptureMode(CaptureMode* mode) {
  return enter("cuThreadExchangeStreamCaptureMode", kNothing, [&](Call&) -> Result {
    if (mode == nullptr || static_cast<int>(*mode) < 0 || *mode > CaptureMode::kRelaxed) return kInvalidValue;
    std::swap(*mode, capture_mode);
    return kSuccess;
  });
}

/// How many there are; the nodes themselves have no handles here.
EXPORT int cuGraphGetNodes(Graph* graph, void** nodes, std::size_t* count) {
  return enter("cuGraphGetNodes", kNothing, [&](Call& call) -> Result {
    if (!call.driver.graphs.contains(graph) || count == nullptr) return kInvalidValue;
    if (nodes != nullptr) return kNotSupported;
    *count = graph->nodes;
    return kSuccess;
  });
}
EXPORT int cuGraphDestroy(Graph* graph) {
  return enter("cuGraphDestroy", kNothing, [&](Call& call) -> Result {
    return call.driver.graphs.erase(graph) != 0 ? kSuccess : kInvalidValue;
  });
}
