#include "topo/xml_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"

namespace loom::topo {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }
  /// What write() left for the end to tell. False with errno.
  bool close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

/// False with errno.
bool write_all(Descriptor& file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  return file.close();
}

std::optional<struct stat> status_of(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? std::optional(status) : std::nullopt;
}

/// /dev/stdout and the like lead to whatever file the shell has put there, at which others write too.
bool is_own_output(const struct stat& status) {
  for (const int number : {STDOUT_FILENO, STDERR_FILENO})
    if (struct stat own{};
        ::fstat(number, &own) == 0 && own.st_dev == status.st_dev && own.st_ino == status.st_ino)
      return true;
  return false;
}

/// Where links lead; the path itself where there is nothing yet.
std::string resolved(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  return real ? std::string(real.get()) : path;
}

/// A new file beside `path` that was not there before, whatever others may have put there; `name` becomes its
/// name.
int open_beside(const std::string& path, std::string& name) {
  std::random_device random;
  for (int attempt = 0; attempt < 100; ++attempt) {
    name = loom::format("{}.{:08x}.tmp", path, random());
    const int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

/// False with errno, and nothing left behind. Throws Error where the folder is the obstacle. `name`: the
/// file's in messages.
bool replace(const std::string& name, const std::string& text, const std::optional<struct stat>& before) {
  const std::string path = resolved(name);
  std::string temporary;
  Descriptor file(open_beside(path, temporary));
  if (file.get() < 0 && before)
    throw system_error(loom::format("cannot write {}: its folder takes no new file to replace it by", name),
                       errno);
  if (file.get() < 0) return false;
  // Its owner first: a change of owner may take rights away. Only root may give files away; others keep their
  // own.
  const bool kept =
      !before || ((before->st_uid == ::geteuid() ||
                   ::fchown(file.get(), before->st_uid, before->st_gid) == 0 || errno == EPERM) &&
                  ::fchmod(file.get(), before->st_mode & 07777) == 0);
  if (kept && write_all(file, text) && std::rename(temporary.c_str(), path.c_str()) == 0) return true;
  const int error = errno;
  ::unlink(temporary.c_str());
  errno = error;
  return false;
}

/// False with errno.
bool write_into(const std::string& path, const std::string& text) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  return file.get() >= 0 && write_all(file, text);
}

}  // namespace

std::string read_text_file(const std::string& path, std::size_t limit) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    throw Error(ErrorCode::kBadInput, loom::format("{}: {}.", path, std::strerror(errno)));
  if (S_ISDIR(status.st_mode)) throw Error(ErrorCode::kBadInput, loom::format("{}: this is a folder.", path));
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorCode::kBadInput, loom::format("{}: {}.", path, std::strerror(errno)));
  // Reads what there is, not what stat says: pipes and /proc files say 0.
  std::string text(limit + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > limit)
    throw Error(ErrorCode::kBadInput,
                loom::format("{}: the file is larger than {} bytes, the limit.", path, limit));
  return text;
}

void write_text_file(const std::string& path, const std::string& text) {
  const std::optional<struct stat> before = status_of(path);
  struct stat link {};
  const bool leads_nowhere = !before && ::lstat(path.c_str(), &link) == 0;
  const bool straight = leads_nowhere || (before && (!S_ISREG(before->st_mode) || is_own_output(*before)));
  if (straight ? !write_into(path, text) : !replace(path, text, before))
    throw system_error(loom::format("cannot write {}", path), errno);
}

}  // namespace loom::topo
