#include "component/links/gpu_network.hpp"

#include <algorithm>
#include <cstdint>

#include "base/error.hpp"
#include "base/format.hpp"
#include "component/links/shared_layout.hpp"

namespace loom {
namespace {

using device::steps::FarEnd;
using ucx_transport::NetEnd;
using ucx_transport::NetRecvLink;
using ucx_transport::NetSendLink;
using ucx_transport::RailId;
using ucx_transport::Slots;

/// Slots are few and long: the sender hears of each that may be used again.
device::FifoShape shape_of(const device::steps::FifoForm& form) {
  return {.slot_bytes = form.slot_bytes,
          .slot_count = form.slot_count,
          .releases_per_credit = std::max<std::size_t>(1, form.slot_count / 4),
          .bytes_per_credit = form.bytes() / 4};
}

}  // namespace

NetEnd& GpuNetwork::End::net() const {
  return send ? static_cast<NetEnd&>(*send) : *receive;
}

GpuNetwork::GpuNetwork(ucx_transport::Transport& transport, std::span<const FarEnd> ends,
                       std::span<const Slots> slots, std::span<const RailId> rails,
                       ucx_transport::NetProxy::Flush flush, const Group& group)
    : transport_(transport), flush_(std::move(flush)) {
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const FarEnd& far = ends[i];
    End end{.far = far, .rail = rails[i], .send = nullptr, .receive = nullptr};
    ucx_transport::Place place{slots[i], far.on_gpu};
    if (far.sends)
      end.send = std::make_unique<NetSendLink>(transport, shape_of(far.form), group.name_of(far.peer),
                                               std::move(place));
    else
      end.receive = std::make_unique<NetRecvLink>(transport, shape_of(far.form), group.name_of(far.peer),
                                                  std::move(place));
    ends_.push_back(std::move(end));
  }
}

GpuNetwork::~GpuNetwork() = default;

void GpuNetwork::write_handle(ByteWriter& writer) const {
  std::vector<RailId> rails;
  for (const End& end : ends_) rails.push_back(end.rail);
  std::ranges::sort(rails);
  rails.erase(std::unique(rails.begin(), rails.end()), rails.end());
  writer.put(static_cast<std::uint32_t>(rails.size()));
  for (const RailId rail : rails) writer.put_all(transport_.address_of(rail));
  writer.put(static_cast<std::uint32_t>(ends_.size()));
  for (const End& end : ends_) {
    writer.put(static_cast<std::int32_t>(end.far.link));
    writer.put(end.net().inbox());
    writer.put(static_cast<std::uint32_t>(std::ranges::find(rails, end.rail) - rails.begin()));
    writer.put(static_cast<std::uint8_t>(end.far.on_gpu));
  }
}

void GpuNetwork::start() {
  std::vector<ucx_transport::NetSendEnd> sends;
  std::vector<ucx_transport::NetRecvEnd> receives;
  for (const End& end : ends_)
    if (!end.net().is_connected())
      throw Error(ErrorCode::kUnreachable, loom::format("There is no connection to {}.", end.net().peer()));
    else if (end.send)
      sends.push_back({end.far, end.send.get()});
    else
      receives.push_back({end.far, end.receive.get()});
  proxy_.emplace(transport_, sends, receives, flush_);
}

void GpuNetwork::abandon() noexcept {
  proxy_->abandon();
  ucx_transport::give_last_words_time([this] { return proxy_->has_flushed_or_failed(); });
}

std::string GpuNetwork::way() const {
  std::vector<std::string> ways;
  for (const End& end : ends_) ways.push_back(end.net().way());
  std::ranges::sort(ways);
  ways.erase(std::unique(ways.begin(), ways.end()), ways.end());
  return loom::join(ways, ", ");
}

std::vector<int> GpuNetwork::peers() const {
  std::vector<int> ranks;
  for (const End& end : ends_) ranks.push_back(end.far.peer);
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

/// A link has one end there, for it has two in all.
void GpuNetwork::connect_to(int peer, ByteReader handle) {
  std::vector<ucx_transport::Bytes> addresses;
  for (auto left = handle.get<std::uint32_t>(); left > 0; --left) {
    const std::span<const std::byte> address = handle.get_all();
    addresses.emplace_back(address.begin(), address.end());
  }
  for (auto left = handle.get<std::uint32_t>(); left > 0; --left) {
    const auto link = handle.get<std::int32_t>();
    const auto inbox = handle.get<ucx_transport::InboxId>();
    const auto which = handle.get<std::uint32_t>();
    if (which >= addresses.size()) handle.fail("an address is not there");
    const ucx_transport::Bytes& address = addresses[which];
    const bool on_gpu = handle.get<std::uint8_t>() != 0;
    for (const End& end : ends_)
      if (end.far.peer == peer && end.far.link == link) end.net().connect(address, inbox, end.rail, on_gpu);
  }
}

}  // namespace loom
