// library.hpp -- inside topo: a shared library that may be absent, and its functions.
#pragma once

#include <dlfcn.h>

#include <string>

namespace loom::topo {

class Library {
 public:
  explicit Library(const std::string& name) : handle_(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  ~Library() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  explicit operator bool() const noexcept { return handle_ != nullptr; }

  /// nullptr where the library, or this function in it, is absent.
  template <class Function>
  Function* function(const char* name) const {
    return handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(handle_, name));
  }

 private:
  void* handle_;
};

}  // namespace loom::topo
