// SPDX-License-Identifier: BSL-1.0
// Ends a command: standard output, then files.
#include "output.hpp"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

namespace heddle::cli {

void finish_printing() {
    std::cout.flush();
    bool const is_flushed = std::fflush(stdout) == 0;
    if (is_flushed && std::cout && std::ferror(stdout) == 0) return;
    pollfd out{STDOUT_FILENO, 0, 0};
    bool const has_no_reader = poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
    if (!has_no_reader) throw file_error("standard output cannot be written");
}

void deliver(std::vector<json::staged_file> files) {
    finish_printing();
    for (auto& f : files) f.commit();
}

} // namespace heddle::cli
