// SPDX-License-Identifier: BSL-1.0
// Changes numbers in the text of a cluster file.
#include "cluster_changes.hpp"

#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::cli {

namespace {

using ordered_json = nlohmann::ordered_json;

/// Returns where a place begins: in the file, or at the link or type of devices that its first word names.
ordered_json* start_of(ordered_json& cluster, std::string_view& place) {
    auto const end = std::min(place.find_first_of(".["), place.size());
    auto const first = std::string(place.substr(0, end));
    if (cluster.contains(first)) return &cluster;
    auto const rest = [&] { place.remove_prefix(std::min(end + 1, place.size())); };
    if (cluster.contains("links") && cluster["links"].is_object() && cluster["links"].contains(first)) {
        rest();
        return &cluster["links"][first];
    }
    if (cluster.contains("device_types") && cluster["device_types"].is_array())
        for (auto& type : cluster["device_types"])
            if (type.is_object() && type.value("name", ordered_json()) == first) {
                rest();
                return &type;
            }
    return &cluster;
}

/// Returns the value at a place, or null: fields after points, places in lists in brackets.
ordered_json* value_at(ordered_json& cluster, std::string_view place) {
    ordered_json* at = start_of(cluster, place);
    while (!place.empty()) {
        auto const end = std::min(place.find_first_of(".["), place.size());
        if (end > 0) {
            auto const field = std::string(place.substr(0, end));
            if (!at->is_object() || !at->contains(field)) return nullptr;
            at = &(*at)[field];
            place.remove_prefix(end);
        }
        if (place.starts_with('[')) {
            std::size_t number = 0;
            auto const [next, error] = std::from_chars(place.data() + 1, place.data() + place.size(), number);
            if (error != std::errc() || next == place.data() + place.size() || *next != ']' || !at->is_array() ||
                number >= at->size())
                return nullptr;
            at = &(*at)[number];
            place.remove_prefix(static_cast<std::size_t>(next - place.data()) + 1);
        }
        if (place.starts_with('.')) place.remove_prefix(1);
        else if (!place.empty() && !place.starts_with('[')) return nullptr;
    }
    return at;
}

} // namespace

std::string with_changes(std::string const& text, std::string const& name, std::vector<std::string> const& changes) {
    if (changes.empty()) return text;
    auto cluster = ordered_json::parse(text, nullptr, false);
    if (!cluster.is_object()) return text; // whoever reads it says where it is wrong
    for (auto const& change : changes) {
        auto const fail = [&](std::string const& problem) {
            throw input_error("--set " + printable(change, 80), problem);
        };
        auto const equals = std::min(change.rfind('='), change.size());
        double number = 0;
        auto const first = change.data() + std::min(equals + 1, change.size()), last = change.data() + change.size();
        auto const [end, error] = std::from_chars(first, last, number);
        if (first == last || error != std::errc() || end != last)
            fail("expected PLACE=NUMBER, such as inter.bandwidth=25e9");
        auto* const value = value_at(cluster, std::string_view(change).substr(0, equals));
        if (!value || !value->is_number())
            fail("there is no such number in " + name + ", expected a place such as inter.bandwidth or V100.memory");
        *value = number;
    }
    return cluster.dump();
}

} // namespace heddle::cli
