// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Reads profiles of layers with the machines to make pipeline templates for.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/json/names.hpp>
#include <heddle/pipeline/template_problem.hpp>

#include <array>
#include <filesystem>
#include <string>
#include <string_view>

namespace heddle::json {

inline constexpr std::array machine_splits{named{"halves", machine_split::halves}, named{"free", machine_split::free}};

/// Reads a profile and its machines from text; `name` stands in messages.
/// *Throws* `input_error`.
[[nodiscard]] template_problem parse_template_problem(std::string_view text, std::string const& name = "templates");

/// Reads and checks a file of a profile and its machines.
/// *Throws* `file_error` if it cannot be read, `input_error` naming the place if it is wrong.
[[nodiscard]] template_problem read_template_problem(std::filesystem::path const& path);

} // namespace heddle::json

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>
#include <heddle/json/document.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace heddle::json {

namespace detail {

class template_reader {
public:
    explicit template_reader(document const& file) : file_(file) {}

    template_problem read() {
        element const root = file_.root();
        root.allow_only(
            {"format", "version", "name", "meta", "micro_batches", "split", "layers", "device_types", "machines"});
        result_.micro_batches = root.at("micro_batches").integer(1, std::int64_t{1} << 40);
        if (auto const split = root.find("split")) result_.split = split->choice(machine_splits);
        root.at("layers").for_each([&](element const& e) {
            e.allow_only({"name", "kept", "saved", "input"});
            auto const amount = [&](std::string_view field) {
                auto const found = e.find(field);
                return bytes(found ? found->non_negative() : 0);
            };
            result_.memory.push_back({amount("kept"), amount("saved"), amount("input")});
            auto const name = e.find("name");
            result_.layer_names.push_back(name ? name->text() : "");
        });
        root.at("device_types").for_each([&](element const& e) { read_type(e); });
        root.at("machines").for_each([&](element const& e) { read_machines(e); });
        try {
            heddle::detail::check(result_);
        } catch (input_error const& e) { root.fail(e.what()); }
        return std::move(result_);
    }

private:
    [[nodiscard]] std::vector<seconds> times(element const& e) const {
        if (e.size() != result_.layer_count())
            e.expected("one time for each of " + std::to_string(result_.layer_count()) + " layers");
        std::vector<seconds> row;
        e.for_each([&](element const& t) { row.emplace_back(t.non_negative()); });
        return row;
    }

    void read_type(element const& e) {
        e.allow_only({"name", "memory", "forward", "backward", "all_reduce"});
        template_device_type type;
        auto const name = e.at("name");
        type.name = name.name();
        if (algorithm::find(result_.types, type.name, &template_device_type::name) != result_.types.end())
            name.expected("a name that no other device type has");
        if (auto const memory = e.find("memory")) type.memory_limit = bytes(memory->positive());
        type.times = {times(e.at("forward")), times(e.at("backward"))};
        if (auto const tables = e.find("all_reduce"))
            for (auto const& [size, row] : tables->fields()) {
                std::size_t devices = 0;
                auto const end = size.data() + size.size();
                if (auto const parsed = std::from_chars(size.data(), end, devices);
                    parsed.ptr != end || parsed.ec != std::errc() || devices < 1)
                    row.fail("is no table of a number of devices, expected a field such as \"2\"");
                type.all_reduce.emplace(devices, times(row));
            }
        result_.types.push_back(std::move(type));
    }

    void read_machines(element const& e) {
        e.allow_only({"type", "devices", "count"});
        auto const name = e.at("type");
        auto const type = algorithm::find(result_.types, name.text(), &template_device_type::name);
        if (type == result_.types.end()) name.expected("the name of a device type");
        if (type->machines != 0) name.expected("a device type that has no machines yet");
        auto const optional = [&](std::string_view field) {
            auto const found = e.find(field);
            return found ? found->integer(1, 65536) : 1;
        };
        type->devices_per_machine = static_cast<std::size_t>(optional("devices"));
        type->machines = static_cast<std::size_t>(optional("count"));
        if ((devices_ += type->device_count()) > 65536) e.fail("makes more than 65536 devices");
    }

    document const& file_;
    template_problem result_;
    std::size_t devices_ = 0;
};

} // namespace detail

HEDDLE_INLINE template_problem parse_template_problem(std::string_view text, std::string const& name) {
    return detail::guarded(name, [&] { return detail::template_reader(document(name, text, "templates", 1)).read(); });
}

HEDDLE_INLINE template_problem read_template_problem(std::filesystem::path const& path) {
    return parse_template_problem(detail::guarded(path.string(), [&] { return read_text(path); }), path.string());
}

} // namespace heddle::json

#endif
