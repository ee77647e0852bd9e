// xml_mutator.cpp -- how libFuzzer changes inputs that are XML: elements are copied, moved, removed and
// renamed, and attributes get values that are at a limit or that stand elsewhere in the file. Bytes changed
// at random mostly make files that the XML parser refuses, and never reach the readers behind it. One change
// in eight is of bytes all the same: the parser's errors are to be met, too.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <pugixml.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace {

using Random = std::minstd_rand;

/// Numbers at the limits of types, and words in the forms that the readers know.
constexpr std::array kValues = {
    "",           "0",           "1",          "-1",         "2",
    "16",         "127",         "1025",       "65536",      "2147483647",
    "2147483648", "-2147483648", "4294967296", "1e308",      "9223372036854775807",
    "1e-308",     "-0.0",        "nan",        "inf",        "18446744073709551616",
    "0x",         "0x0",         "0x10000",    "0xffffffff", "0xffffffffffffffff",
    "0000:07:00", "fff:ff:1f.7", "0000,00ff",  "0x1,0xf",    "0000:07:00.0"};

std::size_t below(Random& random, std::size_t limit) {
  return random() % limit;
}

std::vector<pugi::xml_node> elements_of(const pugi::xml_document& document) {
  struct Collect : pugi::xml_tree_walker {
    std::vector<pugi::xml_node> found;
    bool for_each(pugi::xml_node& node) override {
      if (node.type() == pugi::node_element) found.push_back(node);
      return true;
    }
  } collect;
  document.document_element().parent().traverse(collect);
  return collect.found;
}

pugi::xml_node any_of(const pugi::xml_document& document, Random& random) {
  const std::vector<pugi::xml_node> elements = elements_of(document);
  return elements.empty() ? pugi::xml_node() : elements[below(random, elements.size())];
}

pugi::xml_attribute any_of(const pugi::xml_node& node, Random& random) {
  const auto attributes = node.attributes();
  const auto count = static_cast<std::size_t>(std::distance(attributes.begin(), attributes.end()));
  return count == 0 ? pugi::xml_attribute()
                    : *std::next(attributes.begin(), static_cast<long>(below(random, count)));
}

void change_value(pugi::xml_attribute attribute, const pugi::xml_node& other, Random& random) {
  switch (below(random, 4)) {
    case 0:
      attribute.set_value(kValues[below(random, kValues.size())]);
      break;
    case 1:
      attribute.set_value(any_of(other, random).value());
      break;
    case 2:  // of the same name, so of the same kind
      attribute.set_value(other.attribute(attribute.name()).value());
      break;
    default: {
      std::array<std::uint8_t, 64> bytes{};
      const std::size_t size = std::min(std::strlen(attribute.value()), bytes.size() - 1);
      std::memcpy(bytes.data(), attribute.value(), size);
      bytes[LLVMFuzzerMutate(bytes.data(), size, bytes.size() - 1)] = 0;
      attribute.set_value(reinterpret_cast<const char*>(bytes.data()));
    }
  }
}

void change(pugi::xml_document& document, Random& random) {
  pugi::xml_node node = any_of(document, random);
  pugi::xml_node other = any_of(document, random);
  switch (below(random, 12)) {
    case 0:
      other.append_copy(node);
      break;
    case 1:
      node.parent().insert_copy_after(node, node);
      break;
    case 2:
      other.append_move(node);  // does nothing where other is within node
      break;
    case 3:
      node.parent().remove_child(node);
      break;
    case 4:
      node.set_name(other.name());
      break;
    case 5:
      node.remove_attribute(any_of(node, random));
      break;
    case 6:
      if (const pugi::xml_attribute attribute = any_of(other, random)) node.append_copy(attribute);
      break;
    default:
      if (const pugi::xml_attribute attribute = any_of(node, random)) change_value(attribute, other, random);
  }
}

/// The document's text in `data`; 0 if it has more than `most` bytes.
std::size_t write(const pugi::xml_document& document, std::uint8_t* data, std::size_t most) {
  std::ostringstream text;
  document.save(text, "", pugi::format_raw | pugi::format_no_declaration);
  const std::string bytes = text.str();
  if (bytes.size() > most) return 0;
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most,
                                               unsigned seed) {
  Random random(seed);
  pugi::xml_document document;
  if (below(random, 8) != 0 && document.load_buffer(data, size)) {
    for (std::size_t changes = 1 + below(random, 4); changes > 0; --changes) change(document, random);
    if (const std::size_t written = write(document, data, most)) return written;
  }
  return LLVMFuzzerMutate(data, size, most);
}

/// A part of the second input, anywhere in the first.
extern "C" std::size_t LLVMFuzzerCustomCrossOver(const std::uint8_t* first, std::size_t first_size,
                                                 const std::uint8_t* second, std::size_t second_size,
                                                 std::uint8_t* out, std::size_t most, unsigned seed) {
  Random random(seed);
  pugi::xml_document into, from;
  if (!into.load_buffer(first, first_size) || !from.load_buffer(second, second_size)) return 0;
  any_of(into, random).append_copy(any_of(from, random));
  return write(into, out, most);
}
