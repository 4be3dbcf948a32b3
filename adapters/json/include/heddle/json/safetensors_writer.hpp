// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Writes tensors to safetensors files.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/json/durable_file.hpp>
#include <heddle/json/names.hpp>
#include <heddle/json/safetensors.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace heddle::json {

/// The element type of numbers that are computed with.
template <class Scalar>
inline constexpr element_type type_of_scalar =
    std::is_same_v<Scalar, float> ? element_type::float32 : element_type::float64;

namespace detail {

/// Returns the header of a file of tensors of these names and shapes, one after the other.
[[nodiscard]] std::string safetensors_header(std::vector<std::pair<std::string, tensor_shape>> const& tensors,
                                             element_type type);

} // namespace detail

/// Writes a file's tensors one after the other, without having them all in memory.
template <class Scalar>
class safetensors_writer {
    static_assert(std::is_same_v<Scalar, float> || std::is_same_v<Scalar, double>);

public:
    /// Begins a file of tensors of these names and shapes. *Throws* `file_error`, as all members do.
    safetensors_writer(std::filesystem::path path, std::vector<std::pair<std::string, tensor_shape>> const& tensors)
        : file_(std::move(path)) {
        auto const text = detail::safetensors_header(tensors, type_of_scalar<Scalar>);
        std::string length;
        append(length, static_cast<std::uint64_t>(text.size()));
        file_.write(length + text);
    }

    /// Writes the elements of the next tensor. *Precondition:* it has the shape that was announced.
    void write(dense_tensor<Scalar> const& t) {
        constexpr std::size_t at_once = 1 << 16;
        std::string block;
        for (std::size_t done = 0; done < t.data.size(); done += at_once) {
            block.clear();
            for (std::size_t k = done; k < std::min(done + at_once, t.data.size()); ++k)
                append(block, std::bit_cast<bits>(t.data[k]));
            file_.write(block);
        }
    }
    /// Waits until all of it is on disk.
    void finish() { file_.finish(); }

private:
    using bits = std::conditional_t<sizeof(Scalar) == 4, std::uint32_t, std::uint64_t>;

    /// Appends the bytes of a number, the least significant first.
    template <class Number>
    static void append(std::string& to, Number n) {
        for (std::size_t i = 0; i < sizeof n; ++i) to += static_cast<char>(n >> (8 * i) & 255);
    }

    durable_file file_;
};

} // namespace heddle::json

#if HEDDLE_DEFINITIONS

#include <nlohmann/json.hpp>

namespace heddle::json {

HEDDLE_INLINE std::string detail::safetensors_header(std::vector<std::pair<std::string, tensor_shape>> const& tensors,
                                                     element_type type) {
    auto header = nlohmann::ordered_json::object();
    std::uint64_t begin = 0;
    for (auto const& [name, shape] : tensors) {
        auto const elements = static_cast<std::uint64_t>(count_elements(shape));
        auto const end = begin + elements * static_cast<std::uint64_t>(element_size(type));
        header[name] = {{"dtype", name_of(safetensors_types, type)}, {"shape", shape}, {"data_offsets", {begin, end}}};
        begin = end;
    }
    auto text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' '); // elements are aligned
    return text;
}

} // namespace heddle::json

#endif // HEDDLE_DEFINITIONS
