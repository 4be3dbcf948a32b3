// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Reads tensors of safetensors files: a JSON header that says where each tensor's elements are, then the
/// elements.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/json/document.hpp>
#include <heddle/json/names.hpp>
#include <heddle/program/tensor.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace heddle::json {

/// What safetensors files call element types. There are others, which programs here do not have.
inline constexpr std::array safetensors_types{
    named{"F16", element_type::float16}, named{"BF16", element_type::bfloat16}, named{"F32", element_type::float32},
    named{"F64", element_type::float64}, named{"I8", element_type::int8},       named{"I32", element_type::int32},
    named{"I64", element_type::int64},   named{"BOOL", element_type::boolean}};

/// A tensor of a safetensors file; its elements are the bytes [begin, end) of the file.
struct stored_tensor {
    element_type type = element_type::float32;
    tensor_shape shape;
    std::uint64_t begin = 0, end = 0;
};

/// The tensors of a file whose header is `text` and whose elements are the `size` bytes that begin at byte `begin`, by
/// name.
/// *Throws* `input_error` that names `file` and the place if elements overlap, leave gaps, are not as many as the shape
/// says, or do not end where the file does.
[[nodiscard]] std::map<std::string, stored_tensor> parse_safetensors_header(std::string_view text,
                                                                            std::string const& file,
                                                                            std::uint64_t begin, std::uint64_t size);

/// A safetensors file. Opening it reads the header; elements are read when they are asked for.
class safetensors_file {
public:
    /// *Throws* `file_error` if it cannot be read, `input_error` if it is no safetensors file.
    explicit safetensors_file(std::filesystem::path const& path);

    [[nodiscard]] std::string const& name() const { return name_; }
    [[nodiscard]] std::map<std::string, stored_tensor> const& tensors() const { return tensors_; }

    /// Reads the rows [first, first + count) of a tensor's first dimension, as numbers of type `Scalar`.
    /// *Preconditions.* The tensor is one of this file and has these rows. *Throws* `file_error`.
    template <class Scalar>
    [[nodiscard]] dense_tensor<Scalar> read(stored_tensor const& t, extent first, extent count);
    /// Reads a whole tensor. *Throws* `file_error`.
    template <class Scalar>
    [[nodiscard]] dense_tensor<Scalar> read(stored_tensor const& t);

private:
    void read_bytes(std::uint64_t at, char* to, std::uint64_t size);

    std::string name_;
    std::ifstream file_;
    std::map<std::string, stored_tensor> tensors_;
};

namespace detail {

/// Returns the number that these bytes, the least significant first, are the bits of.
template <class Bits>
[[nodiscard]] Bits little_endian(char const* bytes) {
    Bits result = 0;
    for (std::size_t i = 0; i < sizeof(Bits); ++i)
        result = static_cast<Bits>(result | static_cast<Bits>(static_cast<unsigned char>(bytes[i])) << (8 * i));
    return result;
}

/// Returns the number of IEEE 754's binary16 that has these bits.
[[nodiscard]] inline float half_float(std::uint16_t bits) {
    int const exponent = bits >> 10 & 31, fraction = bits & 1023;
    float const size =
        exponent == 31  ? (fraction ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity())
        : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                        : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
    return bits >> 15 ? -size : size;
}

template <class Scalar>
[[nodiscard]] Scalar number_of(element_type type, char const* bytes) {
    switch (type) {
    case element_type::float16: return static_cast<Scalar>(half_float(little_endian<std::uint16_t>(bytes)));
    case element_type::bfloat16:
        return static_cast<Scalar>(
            std::bit_cast<float>(static_cast<std::uint32_t>(little_endian<std::uint16_t>(bytes)) << 16));
    case element_type::float32: return static_cast<Scalar>(std::bit_cast<float>(little_endian<std::uint32_t>(bytes)));
    case element_type::float64: return static_cast<Scalar>(std::bit_cast<double>(little_endian<std::uint64_t>(bytes)));
    case element_type::int8: return static_cast<Scalar>(static_cast<std::int8_t>(little_endian<std::uint8_t>(bytes)));
    case element_type::int32:
        return static_cast<Scalar>(static_cast<std::int32_t>(little_endian<std::uint32_t>(bytes)));
    case element_type::int64:
        return static_cast<Scalar>(static_cast<std::int64_t>(little_endian<std::uint64_t>(bytes)));
    case element_type::boolean: return static_cast<Scalar>(*bytes != 0);
    }
    return {};
}

} // namespace detail

template <class Scalar>
dense_tensor<Scalar> safetensors_file::read(stored_tensor const& t, extent first, extent count) {
    tensor_shape shape = t.shape;
    shape[0] = count;
    auto const size = static_cast<std::uint64_t>(element_size(t.type));
    auto const elements = static_cast<std::uint64_t>(count_elements(shape));
    std::uint64_t const row = count == 0 ? 0 : elements / static_cast<std::uint64_t>(count) * size;
    dense_tensor<Scalar> result(std::move(shape));
    constexpr std::uint64_t at_once = 1 << 16;
    std::vector<char> block(std::min(elements, at_once) * size);
    for (std::uint64_t done = 0; done < elements; done += at_once) {
        auto const n = std::min(at_once, elements - done);
        read_bytes(t.begin + static_cast<std::uint64_t>(first) * row + done * size, block.data(), n * size);
        for (std::uint64_t k = 0; k < n; ++k)
            result.data[done + k] = detail::number_of<Scalar>(t.type, block.data() + k * size);
    }
    return result;
}

template <class Scalar>
dense_tensor<Scalar> safetensors_file::read(stored_tensor const& t) {
    if (!t.shape.empty()) return read<Scalar>(t, 0, t.shape[0]);
    std::array<char, 8> bytes{};
    read_bytes(t.begin, bytes.data(), t.end - t.begin);
    return dense_tensor<Scalar>(tensor_shape{}, detail::number_of<Scalar>(t.type, bytes.data()));
}

} // namespace heddle::json

#if HEDDLE_DEFINITIONS

namespace heddle::json {

HEDDLE_INLINE std::map<std::string, stored_tensor> parse_safetensors_header(std::string_view text,
                                                                            std::string const& file,
                                                                            std::uint64_t begin, std::uint64_t size) {
    std::map<std::string, stored_tensor> result;
    detail::guarded(file, [&] {
        detail::source const header(file, text);
        for (auto const& [name, entry] : element(header, header.root).fields()) {
            if (name == "__metadata__") continue;
            entry.allow_only({"dtype", "shape", "data_offsets"});
            auto& t = result[name];
            t.type = entry.at("dtype").choice(safetensors_types);
            auto const dimensions = entry.at("shape");
            auto bytes = static_cast<std::uint64_t>(element_size(t.type));
            bool is_empty = false;
            dimensions.for_each([&](element const& d) {
                auto const n = static_cast<std::uint64_t>(d.integer(0, std::numeric_limits<std::int64_t>::max()));
                is_empty = is_empty || n == 0;
                if (n > 0 && bytes > std::numeric_limits<std::int64_t>::max() / n)
                    dimensions.fail("makes more bytes than a file has");
                bytes *= std::max<std::uint64_t>(n, 1);
                t.shape.push_back(static_cast<extent>(n));
            });
            if (is_empty) bytes = 0;
            auto const offsets = entry.at("data_offsets");
            if (offsets.size() != 2) offsets.expected("where the elements begin and end");
            auto const most = static_cast<std::int64_t>(size);
            t.begin = static_cast<std::uint64_t>(offsets.item(0).integer(0, most));
            t.end = static_cast<std::uint64_t>(offsets.item(1).integer(static_cast<std::int64_t>(t.begin), most));
            if (t.end - t.begin != bytes)
                offsets.fail("are of " + std::to_string(t.end - t.begin) + " bytes, expected the shape's " +
                             std::to_string(bytes));
        }
    });
    std::vector<std::pair<std::pair<std::uint64_t, std::uint64_t>, std::string>> order;
    for (auto& [name, t] : result) order.push_back({{t.begin, t.end}, name});
    std::ranges::sort(order);
    std::uint64_t next = 0;
    for (auto const& [range, name] : order) {
        if (range.first != next)
            throw input_error(file + ": " + printable(name), "begins at byte " + std::to_string(range.first) +
                                                                 " of the elements, expected " + std::to_string(next) +
                                                                 ", where the one before ends");
        next = range.second;
    }
    if (next != size)
        throw input_error(file, "has " + std::to_string(size) + " bytes of elements, expected the " +
                                    std::to_string(next) + " that its header lists");
    for (auto& [name, t] : result) {
        t.begin += begin;
        t.end += begin;
    }
    return result;
}

HEDDLE_INLINE safetensors_file::safetensors_file(std::filesystem::path const& path) : name_(path.string()) {
    constexpr std::uint64_t length_size = 8, longest_header = 100'000'000;
    std::error_code error;
    auto const size = std::filesystem::file_size(path, error);
    if (error) throw file_error(name_ + ": cannot be read: " + error.message());
    errno = 0;
    file_.open(path, std::ios::binary);
    if (!file_) throw file_error(name_ + ": cannot be read: " + std::strerror(errno));
    if (size < length_size) throw input_error(name_, "is too short to be a safetensors file");
    std::array<char, length_size> start{};
    read_bytes(0, start.data(), length_size);
    auto const length = detail::little_endian<std::uint64_t>(start.data());
    if (length > longest_header || length > size - length_size)
        throw input_error(name_, "is no safetensors file, or is cut off: its header would have " +
                                     std::to_string(length) + " bytes, and there are " +
                                     std::to_string(size - length_size));
    std::string header(length, '\0');
    read_bytes(length_size, header.data(), length);
    tensors_ = parse_safetensors_header(header, name_, length_size + length, size - length_size - length);
}

HEDDLE_INLINE void safetensors_file::read_bytes(std::uint64_t at, char* to, std::uint64_t size) {
    file_.seekg(static_cast<std::streamoff>(at));
    if (!file_.read(to, static_cast<std::streamsize>(size)))
        throw file_error(name_ + ": cannot be read, or was changed since it was opened");
}

} // namespace heddle::json

#endif // HEDDLE_DEFINITIONS
