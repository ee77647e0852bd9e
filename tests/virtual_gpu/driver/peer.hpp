// peer.hpp -- another process with the virtual driver (driver_peer.cpp), and what one asks it to do.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace virtual_gpu {

class Peer {
 public:
  Peer() {
    int to[2], from[2];
    EXPECT_EQ(::pipe(to), 0);
    EXPECT_EQ(::pipe(from), 0);
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(to[0], 0);
      ::dup2(from[1], 1);
      for (const int file : {to[0], to[1], from[0], from[1]}) ::close(file);
      ::execl(DRIVER_PEER, DRIVER_PEER, nullptr);
      ::_exit(127);
    }
    ::close(to[0]);
    ::close(from[1]);
    to_ = ::fdopen(to[1], "w");
    from_ = ::fdopen(from[0], "r");
  }
  ~Peer() {
    std::fclose(to_);
    std::fclose(from_);
    ::waitpid(process_, nullptr, 0);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// The result; the value of the answer goes to `value`.
  int ask(const std::string& command) {
    std::fprintf(to_, "%s\n", command.c_str());
    std::fflush(to_);
    char line[256] = "";
    EXPECT_NE(std::fgets(line, sizeof(line), from_), nullptr);
    char text[200] = "";
    int result = -1;
    std::sscanf(line, "%d %199s", &result, text);
    value = text;
    return result;
  }
  std::string value;

 private:
  pid_t process_;
  FILE *to_, *from_;
};

}  // namespace virtual_gpu
