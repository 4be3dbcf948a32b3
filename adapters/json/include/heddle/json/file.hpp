// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Reads and writes whole files, plain or compressed with gzip.
#pragma once

#include <heddle/base/definitions.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace heddle::json {

/// This is several times the model file of a hundred thousand operators, uncompressed.
inline constexpr std::size_t largest_file = std::size_t{256} << 20;

/// Returns the content of a file, decompressed if it begins like gzip.
/// *Throws* `file_error` if it cannot be read, is damaged, or holds more than `limit` bytes.
[[nodiscard]] std::string read_text(std::filesystem::path const& path, std::size_t limit = largest_file);

/// Checks whether `write_file_atomically` can begin, so that nobody works for a file that cannot be written: it creates
/// an empty file beside the place and removes it. *Throws* `file_error` if that fails.
void require_writable(std::filesystem::path const& path);

/// A whole file beside its place. It takes the place when it is committed; if it never is, it is removed, and what was
/// there stays. It is compressed if the name ends in `.gz`. What is no regular file, such as a terminal or a pipe, is
/// written at once.
class staged_file {
public:
    /// *Throws* `file_error`.
    staged_file(std::filesystem::path path, std::string_view text);
    staged_file(staged_file&& other) noexcept
        : path_(std::move(other.path_)), beside_(std::exchange(other.beside_, {})) {}
    staged_file& operator=(staged_file&&) = delete;
    ~staged_file() { drop(); }

    /// *Throws* `file_error`.
    void commit();

private:
    void drop() noexcept;

    /// `beside_` is empty if nothing is to take the place.
    std::filesystem::path path_, beside_;
};

/// Writes a file such that nobody sees half of it; a failure leaves what was there. See `staged_file`.
/// *Throws* `file_error`.
void write_file_atomically(std::filesystem::path const& path, std::string_view text);

} // namespace heddle::json

#if HEDDLE_DEFINITIONS

#include <heddle/base/error.hpp>

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <system_error>

namespace heddle::json {

namespace detail {

struct close_gzip {
    void operator()(gzFile file) const { gzclose(file); }
};

using gzip_file = std::unique_ptr<gzFile_s, close_gzip>;

HEDDLE_INLINE std::string describe_error(gzFile file) {
    int code = Z_OK;
    char const* text = gzerror(file, &code);
    return code == Z_ERRNO ? std::strerror(errno) : text;
}

HEDDLE_INLINE std::filesystem::path temporary_beside(std::filesystem::path const& path) {
    std::random_device random;
    std::filesystem::path result = path;
    result += "." + std::to_string(random()) + ".part";
    return result;
}

HEDDLE_INLINE void write_all(std::filesystem::path const& path, std::string_view text, char const* mode) {
    auto const fail = [&](std::string const& why) { throw file_error(path.string() + ": cannot be written: " + why); };
    errno = 0;
    gzip_file file(gzopen(path.c_str(), mode));
    if (!file) fail(std::strerror(errno));
    while (!text.empty()) {
        auto const size = static_cast<unsigned>(std::min<std::size_t>(text.size(), 1u << 20));
        if (gzwrite(file.get(), text.data(), size) != static_cast<int>(size)) fail(describe_error(file.get()));
        text.remove_prefix(size);
    }
    errno = 0;
    if (int const code = gzclose(file.release()); code != Z_OK)
        fail(code == Z_ERRNO ? std::strerror(errno) : "compression failed");
}

} // namespace detail

HEDDLE_INLINE std::string read_text(std::filesystem::path const& path, std::size_t limit) {
    auto const fail = [&](std::string const& why) { throw file_error(path.string() + ": cannot be read: " + why); };
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) fail("it is a directory");
    errno = 0;
    detail::gzip_file const file(gzopen(path.c_str(), "rb"));
    if (!file) fail(std::strerror(errno));
    std::string text;
    for (std::string block(1u << 18, '\0');;) {
        int const count = gzread(file.get(), block.data(), static_cast<unsigned>(block.size()));
        if (count < 0) fail(detail::describe_error(file.get()));
        if (count == 0) break;
        if (static_cast<std::size_t>(count) > limit - text.size())
            fail("it holds more than " + std::to_string(limit) + " bytes, expected a smaller file");
        text.append(block, 0, static_cast<std::size_t>(count));
    }
    int code = Z_OK;
    gzerror(file.get(), &code);
    if (code != Z_OK && code != Z_STREAM_END) fail("it ends in the middle");
    return text;
}

namespace detail {

HEDDLE_INLINE bool is_no_file(std::filesystem::path const& path) {
    std::error_code error;
    auto const status = std::filesystem::status(path, error);
    return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
}

HEDDLE_INLINE std::filesystem::path behind_link(std::filesystem::path const& path) {
    std::error_code error;
    if (!std::filesystem::is_symlink(path, error)) return path;
    auto resolved = std::filesystem::weakly_canonical(path, error);
    return error ? path : resolved;
}

} // namespace detail

HEDDLE_INLINE void require_writable(std::filesystem::path const& path) {
    std::error_code error;
    if (std::filesystem::is_directory(path, error))
        throw file_error(path.string() + ": cannot be written: it is a directory");
    if (detail::is_no_file(path)) return;
    auto const beside = detail::temporary_beside(detail::behind_link(path));
    try {
        detail::write_all(beside, {}, "wbxT");
    } catch (file_error const&) { throw file_error(path.string() + ": cannot be written: " + std::strerror(errno)); }
    std::filesystem::remove(beside, error);
}

HEDDLE_INLINE staged_file::staged_file(std::filesystem::path path, std::string_view text) : path_(std::move(path)) {
    bool const compress = path_.extension() == ".gz";
    if (detail::is_no_file(path_)) {
        detail::write_all(path_, text, compress ? "wb" : "wbT");
        return;
    }
    beside_ = detail::temporary_beside(detail::behind_link(path_));
    try {
        detail::write_all(beside_, text, compress ? "wbx" : "wbxT");
    } catch (...) {
        drop();
        throw;
    }
}

HEDDLE_INLINE void staged_file::commit() {
    if (beside_.empty()) return;
    std::error_code error;
    std::filesystem::rename(beside_, detail::behind_link(path_), error);
    if (error) throw file_error(path_.string() + ": cannot be written: " + error.message());
    beside_.clear();
}

HEDDLE_INLINE void staged_file::drop() noexcept {
    std::error_code ignored;
    if (!beside_.empty()) std::filesystem::remove(beside_, ignored);
}

HEDDLE_INLINE void write_file_atomically(std::filesystem::path const& path, std::string_view text) {
    staged_file(path, text).commit();
}

} // namespace heddle::json

#endif
