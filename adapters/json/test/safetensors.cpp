// SPDX-License-Identifier: BSL-1.0
#include <heddle/json/safetensors.hpp>

#include <support/errors.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

using namespace heddle;
namespace fs = std::filesystem;

namespace {

/// A file that lasts as long as the test.
struct scratch_file {
    fs::path path = fs::temp_directory_path() / ("heddle_safetensors_" + std::to_string(std::random_device{}()));
    explicit scratch_file(std::string const& header, std::string const& data) {
        std::string length;
        for (int i = 0; i < 8; ++i) length += static_cast<char>(header.size() >> (8 * i) & 255);
        std::ofstream(path, std::ios::binary) << length << header << data;
    }
    scratch_file(scratch_file const&) = delete;
    scratch_file& operator=(scratch_file const&) = delete;
    ~scratch_file() {
        std::error_code ignored;
        fs::remove(path, ignored);
    }
};

std::string bytes_of(std::vector<int> const& values) {
    std::string result;
    for (int v : values) result += static_cast<char>(v);
    return result;
}

std::string entry(std::string const& name, std::string const& type, std::string const& shape, int begin, int end) {
    return "\"" + name + R"(": {"dtype": ")" + type + R"(", "shape": )" + shape + R"(, "data_offsets": [)" +
           std::to_string(begin) + ", " + std::to_string(end) + "]}";
}

std::string problem(std::string const& header, std::string const& data) {
    scratch_file const file(header, data);
    return test::error_of([&] { json::safetensors_file const read(file.path); });
}

} // namespace

TEST_CASE("elements of every type are read as the numbers that they are") {
    scratch_file const file(
        "{" + entry("half", "F16", "[2, 2]", 0, 8) + "," + entry("brain", "BF16", "[2]", 8, 12) + "," +
            entry("single", "F32", "[1]", 12, 16) + "," + entry("double", "F64", "[]", 16, 24) + "," +
            entry("byte", "I8", "[2]", 24, 26) + "," + entry("int", "I32", "[1]", 26, 30) + "," +
            entry("long", "I64", "[1]", 30, 38) + "," + entry("truth", "BOOL", "[3]", 38, 41) + "," +
            entry("none", "F32", "[0, 7]", 41, 41) + R"(, "__metadata__": {"a": "b"}})",
        bytes_of({0,    0x3c, 1,    0,    0xff, 0x7b, 0,    0xfc,             // 1, 2^-24, 65504, -infinity
                  0x80, 0x3f, 0x48, 0xc1,                                     // 1, -12.5
                  0,    0,    0x20, 0x40,                                     // 2.5
                  0,    0,    0,    0,    0,    0,    0xf0, 0xbf,             // -1
                  0xff, 5,    0xfe, 0xff, 0xff, 0xff,                         // -1, 5; -2
                  0,    0,    0,    0,    1,    0,    0,    0,    0, 1, 7})); // 2^32; false, true, true
    json::safetensors_file read(file.path);
    auto const values = [&](char const* name) { return read.read<double>(read.tensors().at(name)); };
    CHECK(read.tensors().size() == 9);
    CHECK(values("half") == dense_tensor<double>({2, 2}, {1, std::ldexp(1.0, -24), 65504, -INFINITY}));
    CHECK(values("brain") == dense_tensor<double>({2}, {1, -12.5}));
    CHECK(values("single") == dense_tensor<double>({1}, 2.5));
    CHECK(values("double") == dense_tensor<double>({}, -1));
    CHECK(values("byte") == dense_tensor<double>({2}, {-1, 5}));
    CHECK(values("int") == dense_tensor<double>({1}, -2));
    CHECK(values("long") == dense_tensor<double>({1}, 4294967296));
    CHECK(values("truth") == dense_tensor<double>({3}, {0, 1, 1}));
    CHECK(values("none") == dense_tensor<double>({0, 7}));
    CHECK(read.read<float>(read.tensors().at("half"), 1, 1) == dense_tensor<float>({1, 2}, {65504, -INFINITY}));
}

TEST_CASE("long tensors are read in blocks, and rows from where they are") {
    constexpr extent rows = 300, columns = 701;
    std::string data;
    for (extent n = 0; n < rows * columns; ++n)
        for (int i = 0; i < 4; ++i) data += static_cast<char>(n >> (8 * i) & 255);
    auto const size = static_cast<int>(data.size());
    scratch_file const file("{" + entry("a", "I32", "[300, 701]", 0, size) + "}", data);
    json::safetensors_file read(file.path);
    auto const& a = read.tensors().at("a");
    auto const whole = read.read<double>(a), part = read.read<double>(a, 17, 200);
    bool equal = true;
    for (extent n = 0; n < whole.elements(); ++n) equal = equal && whole[n] == static_cast<double>(n);
    for (extent n = 0; n < part.elements(); ++n) equal = equal && part[n] == static_cast<double>(17 * columns + n);
    CHECK(equal);
    CHECK(part.dims == tensor_shape{200, columns});
}

TEST_CASE("damaged safetensors files are refused with the place") {
    std::string const four = bytes_of({1, 2, 3, 4});
    CHECK(problem("{" + entry("a", "F32", "[1]", 0, 4) + "}", four) == "nothing thrown");
    CHECK(test::contains(problem("{" + entry("a", "F32", "[2]", 0, 4) + "}", four), "a.data_offsets: are of 4 bytes"));
    CHECK(test::contains(problem("{" + entry("a", "F32", "[1]", 0, 8) + "}", four), "a.data_offsets[1]: is 8"));
    CHECK(test::contains(problem("{" + entry("a", "F32", "[-1]", 0, 4) + "}", four), "a.shape[0]: is -1"));
    CHECK(test::contains(problem("{" + entry("a", "F32", "[4294967296, 4294967296]", 0, 4) + "}", four),
                         "a.shape: makes more bytes"));
    CHECK(test::contains(problem("{" + entry("a", "U16", "[2]", 0, 4) + "}", four), "a.dtype: is \"U16\""));
    CHECK(test::contains(
        problem("{" + entry("a", "BOOL", "[2]", 0, 2) + "," + entry("b", "BOOL", "[3]", 1, 4) + "}", four),
        "b: begins at byte 1"));
    CHECK(test::contains(problem("{" + entry("a", "BOOL", "[2]", 1, 3) + "}", four), "a: begins at byte 1"));
    CHECK(test::contains(problem("{" + entry("a", "BOOL", "[2]", 0, 2) + "}", four), "has 4 bytes of elements"));
    CHECK(test::contains(
        problem("{" + entry("a", "BOOL", "[4]", 0, 4) + "," + entry("a", "BOOL", "[4]", 0, 4) + "}", four), "twice"));
    CHECK(test::contains(problem("{\"a\": 1}", {}), "a: is 1, expected an object"));
    CHECK(test::contains(problem("[", {}), "line 1"));
    fs::path const none = fs::temp_directory_path() / "heddle_no_such_file";
    CHECK(
        test::contains(test::error_of<file_error>([&] { json::safetensors_file const read(none); }), "cannot be read"));
    scratch_file const file("", "");
    for (auto size : {0, 3, 7}) {
        fs::resize_file(file.path, static_cast<std::uintmax_t>(size));
        CHECK(test::contains(test::error_of([&] { json::safetensors_file const read(file.path); }), "too short"));
    }
    std::ofstream(file.path, std::ios::binary) << std::string(8, '\x7f');
    CHECK(test::contains(test::error_of([&] { json::safetensors_file const read(file.path); }), "no safetensors file"));
}
