// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What ranks tell each other before they can communicate.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/execute/detail/operation.hpp>

#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace heddle::nccl {

/// Values by key, which all ranks of a job share. A value is set once, by one rank.
class store {
public:
    store() = default;
    store(store const&) = delete;
    virtual ~store() = default;

    virtual void set(std::string const& key, std::string const& value) = 0;
    /// Returns nothing if the value is not there yet.
    [[nodiscard]] virtual std::optional<std::string> find(std::string const& key) = 0;

    /// Waits for a value. *Throws* `error` if it does not come in time.
    [[nodiscard]] std::string get(std::string const& key, seconds time_out) {
        std::optional<std::string> found;
        std::string const name = "waiting for '" + key + "'";
        heddle::detail::wait_in_time(time_out, {.name = name}, [&] { return (found = find(key)).has_value(); });
        return *found;
    }
};

/// Makes sure that all ranks have the same `value`, such as the digest of a plan, under this name; all of them call it.
/// *Throws* `error` if this rank's differs from rank 0's, and on rank 0 if that of any rank differs.
inline void require_equal(store& shared, std::size_t rank, std::size_t ranks, std::string const& name,
                          std::string const& value, seconds time_out = seconds(300)) {
    auto const key = [&](std::size_t r) { return "equal/" + name + "/" + std::to_string(r); };
    shared.set(key(rank), value);
    auto const compare = [&](std::size_t with) {
        auto const theirs = shared.get(key(with), time_out);
        if (theirs == value) return;
        auto const& [of_first, of_other] = rank == 0 ? std::pair(value, theirs) : std::pair(theirs, value);
        throw error("ranks 0 and " + std::to_string(rank == 0 ? with : rank) + " differ in the " + name + ": " +
                    of_first + " and " + of_other);
    };
    if (rank != 0) return compare(0);
    for (std::size_t r = 1; r < ranks; ++r) compare(r);
}

/// Values as files of a folder that all ranks see. *Precondition:* the folder is this job's alone: what an earlier one
/// has left would be taken for its own.
class file_store : public store {
public:
    explicit file_store(std::filesystem::path folder) : folder_(std::move(folder)) {
        std::error_code code;
        std::filesystem::create_directories(folder_, code);
        if (code) throw file_error("cannot make the folder '" + folder_.string() + "': " + code.message());
    }

    void set(std::string const& key, std::string const& value) override {
        auto const path = path_of(key);
        auto unfinished = path;
        unfinished += ".unfinished";
        std::ofstream file(unfinished, std::ios::binary);
        file << value;
        file.close();
        std::error_code code;
        if (file) std::filesystem::rename(unfinished, path, code); // whoever finds it finds all of it
        if (!file || code) throw file_error("cannot write '" + path.string() + "'");
    }
    [[nodiscard]] std::optional<std::string> find(std::string const& key) override {
        std::ifstream file(path_of(key), std::ios::binary);
        if (!file) return std::nullopt;
        return std::string(std::istreambuf_iterator<char>(file), {});
    }

private:
    /// Characters other than letters and digits are written as their codes.
    [[nodiscard]] std::filesystem::path path_of(std::string const& key) const {
        std::string name;
        for (char const c : key) {
            auto const code = static_cast<unsigned char>(c);
            name += std::isalnum(code) ? std::string(1, c) : '-' + std::to_string(code) + '-';
        }
        return folder_ / name;
    }

    std::filesystem::path folder_;
};

} // namespace heddle::nccl
