// topo_picture_style.hpp -- inside tools: measures of the picture, in pixels.
#pragma once

#include <cstddef>

namespace loom::tools {

inline constexpr double kGpuWidth = 96, kGpuHeight = 56, kNicWidth = 104, kCharWidth = 6.8, kLineHeight = 13,
                        kGap = 12, kPadding = 10;
inline constexpr double kTightGap = 4;    // both, in compact pictures
inline constexpr double kCombWidth = 20;  // of the NVSwitch, where it joins rows of hosts
inline constexpr double kHeader = 22, kStub = 30, kRail = 12, kBarHeight = 26, kSysBus = 30;
inline constexpr double kNarrowestBox = 166;  // "PCI switch 0000:c4:00.0"
inline constexpr double kWidestRow = 1720, kWidestPicture = 1800, kArcStep = 13, kRowGap = 16, kSysRail = 26;
inline constexpr std::size_t kNicsPerColumn = 4, kMostPortLines = 5;

}  // namespace loom::tools
