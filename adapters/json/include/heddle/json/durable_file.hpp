// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Files that are on disk when they are finished, whatever happens to the machine afterwards.
#pragma once

#include <heddle/base/error.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace heddle::json {

/// A file that is written anew. If it is never finished, it is removed.
class durable_file {
public:
    /// *Throws* `file_error`, as all members do.
    explicit durable_file(std::filesystem::path path)
        : path_(std::move(path)), file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
        if (file_ < 0) fail();
    }
    durable_file(durable_file const&) = delete;
    durable_file& operator=(durable_file const&) = delete;
    ~durable_file() {
        if (file_ < 0) return;
        ::close(file_);
        std::error_code ignored;
        std::filesystem::remove(path_, ignored);
    }

    void write(std::string_view bytes) {
        while (!bytes.empty()) {
            auto const written = ::write(file_, bytes.data(), bytes.size());
            if (written < 0 && errno == EINTR) continue;
            if (written < 0) fail();
            bytes.remove_prefix(static_cast<std::size_t>(written));
        }
    }
    /// Waits until all of it is on disk.
    void finish() {
        if (::fsync(file_) != 0) fail();
        if (::close(std::exchange(file_, -1)) != 0) fail();
    }

private:
    [[noreturn]] void fail() const {
        throw file_error(path_.string() + ": cannot be written: " + std::strerror(errno));
    }

    std::filesystem::path path_;
    int file_;
};

/// Waits until a folder's entries are on disk. *Throws* `file_error`.
inline void sync_folder(std::filesystem::path const& folder) {
    int const opened = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool const is_synced = opened >= 0 && ::fsync(opened) == 0;
    int const problem = errno;
    if (opened >= 0) ::close(opened);
    if (!is_synced) throw file_error(folder.string() + ": cannot be written: " + std::strerror(problem));
}

/// Puts a text in the place of a file, or of none: whoever reads it sees the old text or the new one, also if the
/// machine stops meanwhile. *Throws* `file_error`; then the old text stays.
inline void replace_durably(std::filesystem::path const& path, std::string_view text) {
    auto beside = path;
    beside += ".part";
    durable_file file(beside);
    file.write(text);
    file.finish();
    std::error_code error;
    std::filesystem::rename(beside, path, error);
    if (error) throw file_error(path.string() + ": cannot be written: " + error.message());
    sync_folder(path.parent_path());
}

} // namespace heddle::json
