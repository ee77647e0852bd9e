// library.hpp -- inside topo: a shared library that may be absent, and its functions.
#pragma once

#include <dlfcn.h>

#include <string>

namespace loom::topo {

class Library {
 public:
  /// `keep`: it stays in the process when this object goes, as libraries must that have started threads or
  /// have been given out to others.
  /// `load`: if the process does not have it yet; else it is absent then.
  explicit Library(const std::string& name, bool keep = false, bool load = true)
      : handle_(::dlopen(name.c_str(),
                         RTLD_NOW | RTLD_LOCAL | (keep ? RTLD_NODELETE : 0) | (load ? 0 : RTLD_NOLOAD))) {}
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
