// topo_picture.hpp -- inside tools: the picture of a machine, and where in it things stand, for those who draw over
// it. Boxes stand in boxes along the PCI tree, GPUs at the bottom of each, so that NVLinks can leave downwards: as
// arcs between GPUs, or straight to a bar that stands for the NVSwitches. Two passes: sizes from the inside out, then
// positions from the outside in.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

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
  struct Arc {  ///< an NVLink between GPUs: its ends on their lower edges, the foot of the host, its lowest point
    Point from, to;
    double foot = 0, lowest = 0;
  };
  std::vector<Box> boxes;   ///< per node; before its host is placed x and y are relative to the box around it
  std::vector<double> top;  ///< per node: x of the link to its PCI parent
  std::vector<double> bus;  ///< per switch and CPU: y of the line that joins its links
  std::vector<double> sys;  ///< per CPU: y of the line that joins NUMA nodes
  std::vector<double> bar;  ///< per host: y of the NVSwitches' upper edge
  std::map<std::pair<topo::NodeId, topo::NodeId>, Arc> arcs;  ///< by both GPUs, in order
  double spine = 0;  ///< x of the line that joins the NVSwitches of several rows
};

class Picture {
 public:
  Picture(const topo::System& system, std::string title);

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
    double w = 0, h = 0, arcs = 0;
    std::vector<std::vector<topo::NodeId>> rows;  // of NUMA nodes
  };

  Box& box(topo::NodeId id) { return places_.boxes[static_cast<std::size_t>(id)]; }
  const std::vector<topo::NodeId>& children(topo::NodeId id) const { return children_[static_cast<std::size_t>(id)]; }
  topo::NodeKind kind(topo::NodeId id) const { return system_.node(id).kind(); }
  const topo::Link* link_between(topo::NodeId from, topo::NodeId to, topo::LinkType type) const;

  void measure(topo::NodeId id);
  std::vector<std::vector<topo::NodeId>> columns_of(topo::NodeId id) const;
  std::vector<HostBox> measure_hosts();
  bool has_sys(const std::vector<topo::NodeId>& row) const;
  int position(topo::NodeId gpu) const;
  double arc_depth(int host) const;

  void place_host(const HostBox& host, double x, double y);
  void draw_sys_bus(const std::vector<topo::NodeId>& row, double x, double y);
  void place(topo::NodeId id, double x, double y);
  void draw_container(topo::NodeId id);
  float link_up(topo::NodeId id, topo::NodeId parent) const;
  void draw_links_up(topo::NodeId id, topo::NodeId parent, double x, double top, double bottom, float& said);
  void draw_gpu(topo::NodeId id);
  void draw_nic(topo::NodeId id);
  void draw_arcs(const HostBox& host, double y);
  void switch_bar(const std::vector<const HostBox*>& hosts, double left, double right, double y);
  void spine();
  double legend(double y);

  const topo::System& system_;
  std::string title_;
  Canvas canvas_;
  Places places_;
  std::vector<std::vector<topo::NodeId>> children_;
  std::vector<const topo::Link*> meshes_;  // between GPUs, one direction of each
  std::vector<double> bars_;
  double width_ = 0, height_ = 0;
};

}  // namespace loom::tools
