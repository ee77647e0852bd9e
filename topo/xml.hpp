// xml.hpp -- inside topo: XML within limits, with errors that say where. The only header that includes the
// parser.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <pugixml.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "topo/xml_file.hpp"

namespace loom::topo {

/// What a topology file may have at most. A rack of 72 GPUs has about 2000 elements in 60 kB; lstopo's
/// description of a large server about 5000 in 1 MB.
struct XmlLimits {
  std::size_t bytes = 16U << 20;
  std::size_t elements = 200'000;
  int depth = 256;
  int attributes = 64;             ///< of one element
  std::size_t value_bytes = 4096;  ///< of one attribute
};

/// A parsed document. Entities beyond XML's own five are not expanded, and document types not read.
class XmlDocument {
 public:
  /// `name` is for messages: the file's path. Throws Error (kBadInput).
  XmlDocument(std::string text, std::string name, const XmlLimits& limits = {});

  pugi::xml_node root() const { return document_->document_element(); }
  const std::string& name() const { return name_; }

  /// Throws Error (kBadInput): "<file>:<line>: <element>: <message>".
  [[noreturn]] void fail(pugi::xml_node element, const std::string& message) const;
  /// The same text, to go on with.
  std::string at(pugi::xml_node element, const std::string& message) const;

  bool has(pugi::xml_node element, const char* attribute) const {
    return !element.attribute(attribute).empty();
  }
  /// The attribute's text; fails where there is none.
  std::string text(pugi::xml_node element, const char* attribute) const;
  std::string text_or(pugi::xml_node element, const char* attribute, std::string fallback) const;
  /// A whole number, decimal or 0x..., within [low, high]; fails otherwise, and where there is none.
  std::int64_t integer(pugi::xml_node element, const char* attribute, std::int64_t low,
                       std::int64_t high) const;
  /// The same, but where there is none, or an empty one, `fallback`.
  std::int64_t integer_or(pugi::xml_node element, const char* attribute, std::int64_t low, std::int64_t high,
                          std::int64_t fallback) const;
  /// Whole numbers with spaces between; none where there is no such attribute.
  std::vector<int> integers(pugi::xml_node element, const char* attribute, int low, int high) const;
  std::uint64_t unsigned64(pugi::xml_node element, const char* attribute) const;
  /// A decimal number within [low, high]; where there is none, or an empty one, `fallback`.
  double number_or(pugi::xml_node element, const char* attribute, double low, double high,
                   double fallback) const;

 private:
  int line_of(std::ptrdiff_t offset) const;
  void check_limits(const XmlLimits& limits) const;

  std::string name_;
  std::vector<std::size_t> line_ends_;
  std::string buffer_;  // the parser's, which writes to it
  std::unique_ptr<pugi::xml_document> document_ = std::make_unique<pugi::xml_document>();
};

/// The next element of a walk through the tree in document order, or an empty one at the end. Without
/// recursion, so that the depth of a document does not matter. `depth` follows; `into`: whether to visit the
/// element's children.
pugi::xml_node next_element(pugi::xml_node element, bool into, int& depth);

/// `document` indented as the project's own files are.
std::string to_text(const pugi::xml_document& document);

}  // namespace loom::topo
