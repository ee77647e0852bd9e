#include "topo/xml.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <sstream>

#include "base/error.hpp"
#include "base/format.hpp"
#include "topo/utf8.hpp"

namespace loom::topo {
namespace {

/// Text from a file in a message: short, and without control characters.
std::string quoted(std::string_view text) {
  const std::string_view shown = first_characters(text, 60);
  std::string out = "\"";
  for (const char c : shown) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return out + (shown.size() < text.size() ? "...\"" : "\"");
}

template <class Number>
bool parse_all(std::string_view text, Number& value, int base) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}

template <class Number>
bool parse_integer(std::string_view text, Number& value) {
  if (text.starts_with("0x") || text.starts_with("0X"))
    return !text.substr(2).starts_with('-') && parse_all(text.substr(2), value, 16);
  return parse_all(text, value, 10);
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// What a text that cannot be XML is instead; "" if it may be.
std::string not_xml(std::string_view text) {
  const auto begins = [&](std::initializer_list<unsigned char> bytes) {
    return text.size() >= bytes.size() &&
           std::equal(bytes.begin(), bytes.end(), text.begin(),
                      [](auto a, char b) { return a == static_cast<unsigned char>(b); });
  };
  if (begins({0x1f, 0x8b})) return "this is not XML, but compressed by gzip: unpack it first.";
  if (begins({0xff, 0xfe}) || begins({0xfe, 0xff}))
    return "the text is UTF-16, not UTF-8: iconv -f UTF-16 -t UTF-8 makes it so.";
  if (begins({0xef, 0xbb, 0xbf})) text.remove_prefix(3);  // a byte order mark
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return "the file is empty.";
  return text[first] == '<' ? "" : "this is not XML: it does not begin with '<'.";
}

}  // namespace

XmlDocument::XmlDocument(std::string text, std::string name, const XmlLimits& limits)
    : name_(std::move(name)), buffer_(std::move(text)) {
  const auto refuse = [&](std::ptrdiff_t offset, const std::string& why) {
    throw Error(ErrorCode::kBadInput, loom::format("{}:{}: {}", name_, line_of(offset), why));
  };
  if (buffer_.size() > limits.bytes)
    refuse(0, loom::format("the file has {} bytes; the limit is {}.", buffer_.size(), limits.bytes));
  for (std::size_t i = 0; i < buffer_.size(); ++i)
    if (buffer_[i] == '\n') line_ends_.push_back(i);
  if (const std::string why = not_xml(buffer_); !why.empty()) refuse(0, why);
  if (const std::size_t valid = valid_utf8(buffer_).size(); valid < buffer_.size())
    refuse(static_cast<std::ptrdiff_t>(valid), "the text is not UTF-8.");
  // The parser allocates for each: so they are counted first.
  std::size_t tags = 0;
  for (std::size_t i = 0; i < buffer_.size(); ++i)
    if (buffer_[i] == '<' && ++tags > 2 * limits.elements)
      refuse(static_cast<std::ptrdiff_t>(i),
             loom::format("the file has more than {} elements, the limit.", limits.elements));

  constexpr unsigned kOptions = pugi::parse_escapes | pugi::parse_wconv_attribute | pugi::parse_eol;
  const pugi::xml_parse_result result =
      document_->load_buffer_inplace(buffer_.data(), buffer_.size(), kOptions, pugi::encoding_utf8);
  if (!result)
    refuse(result.offset, loom::format("this is not well-formed XML: {}{}.", result.description(),
                                       root().empty() ? "" : loom::format(" (in <{:.40}>)", root().name())));
  if (root().empty()) refuse(0, "the file has no element.");
  check_limits(limits);
}

void XmlDocument::check_limits(const XmlLimits& limits) const {
  std::size_t elements = 0;
  int depth = 0;
  for (pugi::xml_node element = root(); element; element = next_element(element, true, depth)) {
    if (++elements > limits.elements)
      fail(element, loom::format("the file has more than {} elements, the limit.", limits.elements));
    if (depth >= limits.depth)
      fail(element, loom::format("elements are nested more than {} deep, the limit.", limits.depth));
    int attributes = 0;
    for (const pugi::xml_attribute attribute : element.attributes()) {
      if (++attributes > limits.attributes)
        fail(element, loom::format("it has more than {} attributes, the limit.", limits.attributes));
      const std::string_view value = attribute.value();
      if (value.size() > limits.value_bytes)
        fail(element, loom::format("attribute '{:.40}' is longer than {} bytes, the limit.", attribute.name(),
                                   limits.value_bytes));
      // By number (&#xD800;) a document can name what is no character.
      if (valid_utf8(value).size() < value.size() ||
          std::any_of(value.begin(), value.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }))
        fail(element,
             loom::format("attribute '{:.40}' holds something that is no character.", attribute.name()));
    }
  }
}

int XmlDocument::line_of(std::ptrdiff_t offset) const {
  const auto at = static_cast<std::size_t>(std::max<std::ptrdiff_t>(offset, 0));
  return 1 +
         static_cast<int>(std::lower_bound(line_ends_.begin(), line_ends_.end(), at) - line_ends_.begin());
}

std::string XmlDocument::at(pugi::xml_node element, const std::string& message) const {
  const char* id_name = "";
  for (const char* candidate : {"busid", "numaid", "name", "target", "dev", "pci_busid", "type"})
    if (has(element, candidate)) {
      id_name = candidate;
      break;
    }
  const std::string id =
      *id_name ? loom::format(" {}={}", id_name, quoted(element.attribute(id_name).value())) : "";
  return loom::format("{}:{}: <{:.40}{}>: {}", name_, line_of(element.offset_debug()), element.name(), id,
                      message);
}

void XmlDocument::fail(pugi::xml_node element, const std::string& message) const {
  throw Error(ErrorCode::kBadInput, at(element, message));
}

std::string XmlDocument::text(pugi::xml_node element, const char* attribute) const {
  if (!has(element, attribute)) fail(element, loom::format("it needs an attribute '{}'.", attribute));
  return element.attribute(attribute).value();
}

std::string XmlDocument::text_or(pugi::xml_node element, const char* attribute, std::string fallback) const {
  return has(element, attribute) ? element.attribute(attribute).value() : std::move(fallback);
}

std::int64_t XmlDocument::integer(pugi::xml_node element, const char* attribute, std::int64_t low,
                                  std::int64_t high) const {
  const std::string value_text = text(element, attribute);
  std::int64_t value = 0;
  if (!parse_integer(trimmed(value_text), value) || value < low || value > high)
    fail(element, loom::format("attribute '{}' is {}; it takes a whole number from {} to {}.", attribute,
                               quoted(value_text), low, high));
  return value;
}

std::int64_t XmlDocument::integer_or(pugi::xml_node element, const char* attribute, std::int64_t low,
                                     std::int64_t high, std::int64_t fallback) const {
  return *element.attribute(attribute).value() == '\0' ? fallback : integer(element, attribute, low, high);
}

std::vector<int> XmlDocument::integers(pugi::xml_node element, const char* attribute, int low,
                                       int high) const {
  std::vector<int> values;
  std::istringstream in(text_or(element, attribute, ""));
  for (std::string word; in >> word;) {
    int value = 0;
    if (!parse_integer(std::string_view(word), value) || value < low || value > high)
      fail(element, loom::format("attribute '{}' has {}; it takes whole numbers from {} to {}.", attribute,
                                 quoted(word), low, high));
    values.push_back(value);
  }
  return values;
}

std::uint64_t XmlDocument::unsigned64(pugi::xml_node element, const char* attribute) const {
  const std::string value_text = text(element, attribute);
  std::uint64_t value = 0;
  if (!parse_integer(trimmed(value_text), value))
    fail(element, loom::format("attribute '{}' is {}; it takes a whole number below 2^64.", attribute,
                               quoted(value_text)));
  return value;
}

double XmlDocument::number_or(pugi::xml_node element, const char* attribute, double low, double high,
                              double fallback) const {
  const std::string value_text = text_or(element, attribute, "");
  if (value_text.empty()) return fallback;
  double value = 0;
  const std::string_view digits = trimmed(value_text);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || !std::isfinite(value) || value < low ||
      value > high)
    fail(element, loom::format("attribute '{}' is {}; it takes a number from {} to {}.", attribute,
                               quoted(value_text), low, high));
  return value;
}

pugi::xml_node next_element(pugi::xml_node element, bool into, int& depth) {
  const auto first_element = [](pugi::xml_node node) {
    while (node && node.type() != pugi::node_element) node = node.next_sibling();
    return node;
  };
  if (into)
    if (const pugi::xml_node child = first_element(element.first_child())) return ++depth, child;
  for (; depth > 0; element = element.parent(), --depth)
    if (const pugi::xml_node sibling = first_element(element.next_sibling())) return sibling;
  return {};
}

std::string to_text(const pugi::xml_document& document) {
  std::ostringstream out;
  document.save(out, "  ", pugi::format_indent | pugi::format_no_declaration);
  return out.str();
}

}  // namespace loom::topo
