// replay.cpp -- runs a fuzz target over the files and folders named on the command line, as a regression
// test.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  int files = 0;
  const auto replay = [&](const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
    // Whole, and cut short at some places.
    for (const std::size_t size : {bytes.size(), bytes.size() / 2, bytes.size() / 3, bytes.size() * 9 / 10})
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), size);
    ++files;
  };
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      if (std::filesystem::exists(argv[i])) replay(argv[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i]))
      if (entry.is_regular_file() && entry.path().extension() != ".json" && entry.path().extension() != ".md")
        replay(entry.path());
  }
  std::printf("%d files replayed\n", files);
  return files > 0 ? 0 : 1;
}
