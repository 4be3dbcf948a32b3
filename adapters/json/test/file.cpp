// SPDX-License-Identifier: BSL-1.0
#include <heddle/json/cluster.hpp>
#include <heddle/json/digest.hpp>
#include <heddle/json/file.hpp>
#include <heddle/json/fitted.hpp>
#include <heddle/json/model.hpp>
#include <heddle/json/samples.hpp>
#include <heddle/json/theory.hpp>

#include <support/errors.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

using namespace heddle;
namespace fs = std::filesystem;

namespace {

/// A directory that lasts as long as the test.
struct scratch {
    fs::path path;
    scratch() {
        path = fs::temp_directory_path() / ("heddle_file_test_" + std::to_string(std::random_device{}()));
        fs::create_directory(path);
    }
    scratch(scratch const&) = delete;
    scratch& operator=(scratch const&) = delete;
    ~scratch() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
    [[nodiscard]] std::size_t entries() const {
        return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), {}));
    }
};

std::string raw(fs::path const& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void write_raw(fs::path const& path, std::string const& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

} // namespace

TEST_CASE("what is written is read again, plain and compressed, whatever the name says on reading") {
    scratch const s;
    std::string text;
    for (int i = 0; i < 100000; ++i) text += std::to_string(i) + "\n";
    json::write_file_atomically(s.path / "a.json", text);
    json::write_file_atomically(s.path / "a.json.gz", text);
    CHECK(raw(s.path / "a.json") == text);
    CHECK(raw(s.path / "a.json.gz").size() < text.size() / 2);
    CHECK(raw(s.path / "a.json.gz").substr(0, 2) == "\x1f\x8b");
    CHECK(json::read_text(s.path / "a.json.gz") == text);
    fs::rename(s.path / "a.json.gz", s.path / "b.json");
    CHECK(json::read_text(s.path / "b.json") == text);
    json::write_file_atomically(s.path / "a.json", "");
    CHECK(json::read_text(s.path / "a.json").empty());
    CHECK(s.entries() == 2);
}

TEST_CASE("writing follows a link and writes into what is no file") {
    scratch const s;
    json::write_file_atomically(s.path / "target", "old");
    fs::create_symlink("target", s.path / "link");
    json::write_file_atomically(s.path / "link", "new");
    CHECK(fs::is_symlink(s.path / "link"));
    CHECK(raw(s.path / "target") == "new");
    json::write_file_atomically("/dev/null", "gone");
    CHECK_FALSE(fs::is_regular_file("/dev/null"));
}

TEST_CASE("a failure to write leaves nothing behind") {
    scratch const s;
    CHECK(test::error_of<file_error>([&] {
              json::write_file_atomically(s.path / "missing" / "a.json", "x");
          }).find("cannot be written: No such file") != std::string::npos);
    fs::create_directory(s.path / "folder");
    CHECK(test::error_of<file_error>([&] {
              json::write_file_atomically(s.path / "folder", "x");
          }).find("cannot be written") != std::string::npos);
    CHECK(s.entries() == 1);
}

TEST_CASE("a staged file takes its place when it is committed, and leaves nothing if it never is") {
    scratch const s;
    write_raw(s.path / "old.json", "old");
    {
        std::vector<json::staged_file> files;
        files.emplace_back(s.path / "old.json", "new");
        files.emplace_back(s.path / "new.json.gz", "new");
        CHECK(raw(s.path / "old.json") == "old");
        CHECK(!fs::exists(s.path / "new.json.gz"));
        CHECK(s.entries() == 3);
    }
    CHECK(s.entries() == 1);
    CHECK(raw(s.path / "old.json") == "old");
    json::staged_file file(s.path / "old.json", "new");
    file.commit();
    file.commit(); // once is enough
    CHECK(raw(s.path / "old.json") == "new");
    CHECK(s.entries() == 1);
    CHECK(test::error_of<file_error>([] {
              json::staged_file("/dev/full", "lost");
          }).starts_with("/dev/full: cannot be written"));
}

TEST_CASE("whether a file can be written is known before, and nothing is changed by asking") {
    scratch const s;
    write_raw(s.path / "there", "as it was");
    json::require_writable(s.path / "there");
    json::require_writable(s.path / "new.gz");
    json::require_writable("/dev/null");
    CHECK(raw(s.path / "there") == "as it was");
    CHECK(s.entries() == 1);
    CHECK(test::error_of<file_error>([&] {
              json::require_writable(s.path / "missing" / "a.json");
          }).find("a.json: cannot be written: No such file") != std::string::npos);
    CHECK(test::error_of<file_error>([&] { json::require_writable(s.path); }).find("it is a directory") !=
          std::string::npos);
}

TEST_CASE("what cannot be read says why") {
    scratch const s;
    CHECK(test::error_of<file_error>([&] {
              static_cast<void>(json::read_model(s.path / "none.json"));
          }).find("none.json: cannot be read: No such file") != std::string::npos);
    CHECK(test::error_of<file_error>([&] {
              static_cast<void>(json::read_cluster(s.path));
          }).find("it is a directory") != std::string::npos);

    json::write_file_atomically(s.path / "whole.gz", std::string(100000, 'x') + std::to_string(1234567));
    std::string const bytes = raw(s.path / "whole.gz");
    write_raw(s.path / "short.gz", bytes.substr(0, bytes.size() - 9));
    CHECK(test::error_of<file_error>([&] {
              static_cast<void>(json::read_text(s.path / "short.gz"));
          }).find("cannot be read") != std::string::npos);
    std::string damaged = bytes;
    damaged[damaged.size() - 6] ^= 1; // in the checksum
    write_raw(s.path / "damaged.gz", damaged);
    CHECK(test::error_of<file_error>([&] {
              static_cast<void>(json::read_text(s.path / "damaged.gz"));
          }).find("cannot be read") != std::string::npos);
}

TEST_CASE("a compressed file that expands beyond all measure is refused") {
    scratch const s;
    json::write_file_atomically(s.path / "bomb.gz", std::string(1 << 22, '\0'));
    CHECK(fs::file_size(s.path / "bomb.gz") < 10000);
    CHECK(test::error_of<file_error>([&] {
              static_cast<void>(json::read_text(s.path / "bomb.gz", 1 << 20));
          }).find("it holds more than 1048576 bytes") != std::string::npos);
    CHECK(json::read_text(s.path / "bomb.gz", 1 << 22).size() == 1 << 22);
}

TEST_CASE("the digest is FNV-1a") {
    CHECK(json::digest("") == "cbf29ce484222325");
    CHECK(json::digest("a") == "af63dc4c8601ec8c");
    CHECK(json::digest("foobar") == "85944171f73967e8");
}
