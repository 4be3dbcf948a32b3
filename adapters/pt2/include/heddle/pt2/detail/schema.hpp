// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Parts of an exported program's JSON: tensors, arguments, names of modules.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/json/document.hpp>
#include <heddle/json/model.hpp>
#include <heddle/json/names.hpp>
#include <heddle/program/tensor.hpp>
#include <heddle/program/traced_call.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::pt2::detail {

using json::element;

inline constexpr char const* symbolic =
    "is symbolic, expected a number: export with fixed sizes, which is torch.export.export without dynamic_shapes, and "
    "without sizes that depend on data";

/// What the graph says of a tensor.
struct tensor_meta {
    tensor_shape dims{};
    element_type type = element_type::float32;
    /// A pair of the type, in a last dimension that `dims` leaves out.
    bool is_complex = false;
    bool requires_grad = false;
    bool is_contiguous = true;

    [[nodiscard]] bool is_empty() const { return algorithm::find(dims, 0) != dims.end(); }
    /// Its shape in a program.
    [[nodiscard]] tensor_shape stored() const {
        tensor_shape result = dims;
        if (is_complex) result.push_back(2);
        return result;
    }
};

/// PyTorch's numbers of element types. Unsigned and short integers are read as the next that a program has.
inline void read_type(element const& code, tensor_meta& meta) {
    switch (code.integer(0, 255)) {
    case 1:                                              // uint8
    case 2: meta.type = element_type::int8; return;      // int8
    case 3:                                              // int16
    case 28:                                             // uint16
    case 4: meta.type = element_type::int32; return;     // int32
    case 29:                                             // uint32
    case 30:                                             // uint64
    case 5: meta.type = element_type::int64; return;     // int64
    case 6: meta.type = element_type::float16; return;   // float16
    case 7: meta.type = element_type::float32; return;   // float32
    case 8: meta.type = element_type::float64; return;   // float64
    case 9: meta.type = element_type::float16; break;    // complex32
    case 10: meta.type = element_type::float32; break;   // complex64
    case 11: meta.type = element_type::float64; break;   // complex128
    case 12: meta.type = element_type::boolean; return;  // bool
    case 13: meta.type = element_type::bfloat16; return; // bfloat16
    default: code.expected("an element type of bool, integers, floats from 16 bits on or complex numbers");
    }
    meta.is_complex = true;
}

/// A size or number that may be symbolic.
inline std::int64_t read_size(element const& e, std::int64_t least, std::int64_t most) {
    if (auto const number = e.find("as_int")) return number->integer(least, most);
    e.fail(symbolic);
}

inline tensor_meta read_meta(element const& e) {
    using namespace json::detail;
    tensor_meta meta;
    read_type(e.at("dtype"), meta);
    auto const sizes = e.at("sizes");
    if (sizes.size() >= most_dimensions) sizes.expected("fewer than " + std::to_string(most_dimensions) + " sizes");
    double elements = 1;
    sizes.for_each([&](element const& size) {
        meta.dims.push_back(read_size(size, 0, largest_extent));
        elements *= static_cast<double>(meta.dims.back());
    });
    if (elements > most_elements) sizes.fail("is the shape of more than 2^50 elements");
    if (auto const wanted = e.find("requires_grad"); wanted && wanted->value().is_boolean())
        meta.requires_grad = wanted->boolean();
    if (auto const strides = e.find("strides");
        strides && strides->value().is_array() && strides->size() == meta.dims.size()) {
        extent dense = 1;
        for (std::size_t d = meta.dims.size(); d-- > 0; dense *= meta.dims[d]) {
            auto const stride = strides->item(d).find("as_int");
            bool const counts = meta.dims[d] != 1;
            if (counts && (!stride || stride->integer(0, INT64_MAX) != dense)) meta.is_contiguous = false;
        }
    }
    return meta;
}

/// The field of a value that is one of several kinds, and which: `as_int` of `{"as_int": 2}`. *Throws* `input_error`.
inline std::pair<std::string, element> read_union(element const& e) {
    if (!e.value().is_object() || e.value().size() != 1)
        e.expected("an object with one field, such as {\"as_int\": 2}");
    std::string key(e.value().fields().front().key);
    auto item = e.at(key);
    return {std::move(key), std::move(item)};
}

/// Turns arguments into literals; tensors are numbered by `number_of`, which takes the place of a name, and left out of
/// lists where `is_left_out` says so of it.
class argument_reader {
public:
    argument_reader(std::function<std::uint32_t(element const&)> number_of,
                    std::function<bool(element const&)> is_left_out)
        : number_of_(std::move(number_of)), is_left_out_(std::move(is_left_out)) {}

    [[nodiscard]] literal read(element const& argument) const {
        auto const [kind, e] = read_union(argument);
        if (kind == "as_none") return {};
        if (kind == "as_tensor") return tensor(e);
        if (kind == "as_optional_tensor") return read(e);
        if (kind == "as_int" || kind == "as_scalar_type" || kind == "as_layout" || kind == "as_memory_format")
            return {e.integer(INT64_MIN, INT64_MAX)};
        if (kind == "as_bool") return {e.boolean()};
        if (kind == "as_float") return {e.value().is_string() ? special(e) : e.number()};
        if (kind == "as_string") return {e.text()};
        if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") return number(e);
        if (kind == "as_device" || kind == "as_operator" || kind == "as_custom_obj") return {std::string(kind)};
        if (kind == "as_tensors") return tensors(e);
        if (kind == "as_optional_tensors" || kind == "as_nested_tensors")
            return list(e, [&](element const& item) { return item.value().is_array() ? tensors(item) : read(item); });
        if (kind == "as_ints" || kind == "as_int_lists")
            return list(e, [&](element const& item) {
                auto const integer = [](element const& i) { return literal{i.integer(INT64_MIN, INT64_MAX)}; };
                return item.value().is_array() ? list(item, integer) : integer(item);
            });
        if (kind == "as_floats")
            return list(e, [](element const& i) { return literal{i.value().is_string() ? special(i) : i.number()}; });
        if (kind == "as_bools") return list(e, [](element const& item) { return literal{item.boolean()}; });
        if (kind == "as_strings") return list(e, [](element const& item) { return literal{item.text()}; });
        if (kind == "as_sym_ints" || kind == "as_sym_bools" || kind == "as_sym_floats")
            return list(e, [](element const& item) { return number(item); });
        return {std::string(kind)}; // of a later minor version: no part of a program
    }

private:
    [[nodiscard]] literal tensor(element const& e) const {
        if (e.find("as_none")) return {};
        return {literal::tensor{number_of_(e.at("name"))}};
    }
    [[nodiscard]] literal tensors(element const& e) const {
        literal::list items;
        e.takes(e.size() * sizeof(literal));
        e.for_each([&](element const& item) {
            if (item.find("as_none") || !is_left_out_(item.at("name"))) items.push_back(tensor(item));
        });
        return {std::move(items)};
    }
    template <class Item>
    [[nodiscard]] static literal list(element const& e, Item item_of) {
        literal::list items;
        e.takes(e.size() * sizeof(literal));
        e.for_each([&](element const& item) { items.push_back(item_of(item)); });
        return {std::move(items)};
    }
    [[nodiscard]] static literal number(element const& e) {
        auto const [kind, item] = read_union(e);
        if (kind == "as_int") return {item.integer(INT64_MIN, INT64_MAX)};
        if (kind == "as_bool") return {item.boolean()};
        if (kind == "as_float") return {item.number()};
        e.fail(symbolic);
    }
    [[nodiscard]] static double special(element const& e) {
        std::string const text = e.text();
        if (text == "Infinity") return std::numeric_limits<double>::infinity();
        if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
        if (text != "NaN") e.expected("a number, \"Infinity\", \"-Infinity\" or \"NaN\"");
        return std::numeric_limits<double>::quiet_NaN();
    }

    std::function<std::uint32_t(element const&)> number_of_;
    std::function<bool(element const&)> is_left_out_;
};

/// The module that made a node, by the last entry of its stack: `key,path,class` between semicolons. A later call of
/// the same module has a mark behind the path.
[[nodiscard]] inline std::string module_path(std::string_view stack) {
    stack = stack.substr(stack.rfind(';') + 1);
    auto const begin = stack.find(',');
    if (begin == std::string_view::npos) return {};
    auto path = stack.substr(begin + 1);
    path = path.substr(0, path.find(','));
    return std::string(path.substr(0, path.find('@')));
}

/// `aten::add` of `torch.ops.aten.add.Tensor`; the overload is told by the names of the arguments.
[[nodiscard]] inline std::string qualified_name(std::string_view target) {
    if (target.starts_with("torch.ops.")) target.remove_prefix(std::string_view("torch.ops.").size());
    auto const space = target.find('.');
    if (space == std::string_view::npos) return std::string(target);
    auto const name = target.substr(space + 1);
    return std::string(target.substr(0, space)) + "::" + std::string(name.substr(0, name.find('.')));
}

} // namespace heddle::pt2::detail
