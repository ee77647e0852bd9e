// topo_picture.hpp -- inside tools: the picture of a machine, and the positions in it, for code that draws
// over it. Boxes nest along the PCI tree, GPUs at the bottom of each, so that NVLinks can leave downwards: as
// arcs between GPUs, or straight to a bar that stands for the NVSwitches. Two passes: sizes from the inside
// out, then positions from the outside in.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/equal_hosts.hpp"
#include "tools/svg_canvas.hpp"
#include "topo/system.hpp"

namespace loom::tools {

struct Point {
  double x = 0, y = 0;
};

/// Where things stand once the picture is drawn, in pixels.
struct Places {
  struct Box {
    double x = 0, y = 0, w = 0, h = 0;
    double centre() const { return x + w / 2; }
    double bottom() const { return y + h; }
  };
  struct Arc {  ///< an NVLink between GPUs: its ends on their lower edges, the foot of the host, its lowest
                ///< point
    Point from, to;
    double foot = 0, lowest = 0;
  };
  std::vector<Box> boxes;   ///< per node; before its host is placed x and y are relative to the box around it
  std::vector<double> top;  ///< per node: x of the link to its PCI parent
  std::vector<double> joint;  ///< per node: y at which that link leaves the parent's line
  std::vector<bool> aside;    ///< per node: that link enters on the left
  std::vector<double>
      bus;  ///< per switch and CPU: y of the line that joins its links, in several rows the first's
  std::vector<double> sys;  ///< per CPU: y of the line that joins NUMA nodes
  std::vector<double> bar;  ///< per host: y of the NVSwitches' upper edge
  std::map<std::pair<topo::NodeId, topo::NodeId>, Arc> arcs;  ///< by both GPUs, in order
  std::vector<double> sys_rail;  ///< per host: x of the line that joins rows of NUMA nodes
  double padding = 0;            ///< between a box of the PCI tree and what is in it
  double spine = 0;              ///< x of the middle of what joins the parts of the NVSwitch of several rows
};

/// "mlx5_0 200G": the port's name, as much of it as there is room for, and its speed in three digits.
std::string port_text(const topo::NetInfo& net);

class Picture {
 public:
  /// Hosts that are not the first of any of `groups` are not drawn. `figures_on_arcs`: GB/s of NVLinks
  /// between GPUs.
  Picture(const topo::System& system, std::string title, std::vector<EqualHosts> groups,
          bool figures_on_arcs = true);

  /// Draws all of it; then further things may be drawn with canvas(), and room below asked for.
  void draw();
  const Places& places() const noexcept { return places_; }
  Canvas& canvas() noexcept { return canvas_; }
  double width() const noexcept { return width_; }
  double height() const noexcept { return height_; }
  /// The SVG, `more` pixels higher than the machine needs.
  std::string finish(double more = 0) const { return canvas_.finish(width_, height_ + more); }

 private:
  using Box = Places::Box;
  struct HostBox {
    int host = 0;
    double w = 0, h = 0;
    std::vector<std::vector<topo::NodeId>> rows;  // of NUMA nodes
    std::vector<double> arcs;                     // per row: room for NVLinks below it
  };
  struct Column {  // boxes one below the other
    std::vector<topo::NodeId> nodes;
    bool rail = false;  // a line on their left joins them
  };
  struct Row {  // of a switch's or a NUMA node's box
    std::vector<Column> columns;
    double top = 0, foot = 0;  // in the box: y of its line, y of its lower end
  };

  Box& box(topo::NodeId id) { return places_.boxes[static_cast<std::size_t>(id)]; }
  const Box& box(topo::NodeId id) const { return places_.boxes[static_cast<std::size_t>(id)]; }
  const std::vector<topo::NodeId>& children(topo::NodeId id) const {
    return children_[static_cast<std::size_t>(id)];
  }
  topo::NodeKind kind(topo::NodeId id) const { return system_.node(id).kind(); }
  const topo::Link* link_between(topo::NodeId from, topo::NodeId to, topo::LinkType type) const;

  void measure(topo::NodeId id);
  double nic_width(topo::NodeId id) const;
  std::vector<Column> columns_of(topo::NodeId id) const;
  bool may_stack(topo::NodeId id) const;
  std::vector<Row> in_rows(std::vector<Column> columns) const;
  std::vector<HostBox> measure_hosts();
  bool too_wide(const std::vector<HostBox>& hosts) const;
  bool has_sys(const HostBox& host) const;
  int position(topo::NodeId gpu) const;
  double arc_depth(const std::vector<topo::NodeId>& gpus) const;
  std::vector<topo::NodeId> gpus_in(const Row& row) const;
  std::vector<topo::NodeId> gpus_below(const std::vector<topo::NodeId>& tops) const;

  void place_host(const HostBox& host, double x, double y);
  std::string sys_text(const HostBox& host) const;
  void draw_sys_bus(const HostBox& host, std::size_t row, double x, double y);
  void place(topo::NodeId id, double x, double y);
  void draw_container(topo::NodeId id);
  void set_foot(const std::vector<topo::NodeId>& tops, double y);
  void draw_row(topo::NodeId id, const Row& row, float& said);
  void draw_rail(topo::NodeId id, const Column& column, double bus, float& said);
  void draw_up(double x1, double y1, double x2, double y2, float gbps);
  void draw_peer_switches();
  float link_up(topo::NodeId id, topo::NodeId parent) const;
  void draw_links_up(topo::NodeId id, topo::NodeId parent, double x, double top, double bottom, float& said);
  void draw_c2c_ports();
  void draw_gpu(topo::NodeId id);
  void draw_nic(topo::NodeId id);
  void draw_arcs(const HostBox& host);
  void draw_arc(const topo::Link& link, double x1, double x2);
  void tag_arcs(const HostBox& host);
  bool is_drawn(topo::NodeId id) const {
    return heading_[static_cast<std::size_t>(system_.node(id).host)].size() > 0;
  }
  void switch_bar(const std::vector<const HostBox*>& hosts, double left, double right, double y);
  void comb();
  double legend(double y);

  const topo::System& system_;
  std::string title_;
  bool figures_on_arcs_;
  std::vector<std::string> heading_;  // per host; empty: it is not drawn
  Canvas canvas_;
  Places places_;
  std::vector<std::vector<topo::NodeId>> children_;
  std::vector<std::vector<Row>> rows_;  // per switch and NUMA node
  std::vector<double> foot_;            // per GPU: y from which its NVLinks turn
  std::vector<bool> folded_;            // per GPU: it is in a box of several rows
  std::vector<bool> folds_;             // per switch and NUMA node: its GPUs stand in several rows
  /// Raised until the picture is narrow enough: first NICs move above the other boxes of their switch and
  /// there is less space between boxes; then NUMA nodes fold into rows although NVLinks leave them downwards.
  int compact_ = 0;
  static constexpr int kMostCompact = 2;
  double gap_;
  std::vector<const topo::Link*> meshes_;  // between GPUs, one direction of each
  std::vector<Box> bars_;                  // parts of the NVSwitch
  double width_ = 0, height_ = 0;
};

}  // namespace loom::tools
