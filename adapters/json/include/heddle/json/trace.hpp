// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Writes an iteration of a plan as a trace for Chrome's and Perfetto's viewers.
#pragma once

#include <heddle/cost/timeline.hpp>
#include <heddle/json/detail/event_labels.hpp>
#include <heddle/plan/plan.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

namespace heddle::json {

namespace detail {

class trace_writer {
public:
    trace_writer(plan const& p, timeline const& events) : plan_(p), timeline_(events), labels_(p) {}

    std::string text() {
        auto const& from = plan_.provenance;
        std::string const title =
            (from.model.empty() ? "plan" : from.model) + (from.cluster.empty() ? "" : " on " + from.cluster);
        std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                          "{\"ph\":\"M\",\"pid\":0,\"name\":\"process_name\",\"args\":{\"name\":" +
                          quoted(title) + "}}";
        bool const interleaves = from.training.interleaves(),
                   overlaps = interleaves || from.training.overlaps_gradients;
        for (std::size_t d = 0; d < plan_.devices.size(); ++d) {
            name_line(out, d, std::to_string(d) + " " + plan_.devices[d].name());
            if (overlaps) name_line(out, channel(d), std::to_string(d) + (interleaves ? " network" : " gradients"));
        }
        for (auto const& e : timeline_.events) {
            auto const& label = labels_.of(e);
            bool const is_beside =
                interleaves ? e.transfer.has_value() : overlaps && e.when == timeline_event::phase::gradient;
            std::size_t const line = is_beside ? channel(e.device) : e.device;
            // The end is rounded, not the duration, so that events which follow each other never overlap.
            std::int64_t const start = nanoseconds(e.start), end = nanoseconds(e.start + e.duration);
            out += ",\n{\"ph\":\"X\",\"pid\":0,\"tid\":" + std::to_string(line) + ",\"ts\":" + microseconds(start) +
                   ",\"dur\":" + microseconds(end - start) + ",\"name\":" + quoted(label.name) + ",\"cat\":\"" +
                   label.category + "\",\"args\":" + label.arguments + "}";
        }
        return out + "\n]}\n";
    }

private:
    /// Returns the line of collectives beside a device's work: those of gradients or, if micro-batches take turns, all.
    [[nodiscard]] std::size_t channel(std::size_t device) const { return plan_.devices.size() + device; }
    /// Names a line; a device's own comes before its channel.
    void name_line(std::string& out, std::size_t line, std::string const& title) const {
        std::size_t const devices = plan_.devices.size();
        std::string const start = ",\n{\"ph\":\"M\",\"pid\":0,\"tid\":" + std::to_string(line) + ",\"name\":\"thread_";
        out += start + "name\",\"args\":{\"name\":" + quoted(title) + "}}";
        out += start + "sort_index\",\"args\":{\"sort_index\":" +
               std::to_string(line < devices ? 2 * line : 2 * (line - devices) + 1) + "}}";
    }
    static std::int64_t nanoseconds(double seconds) {
        return seconds < 9e9 ? std::llround(seconds * 1e9) : std::int64_t{9'000'000'000'000'000'000};
    }
    static std::string microseconds(std::int64_t nanoseconds) {
        auto const rest = std::to_string(1000 + nanoseconds % 1000);
        return std::to_string(nanoseconds / 1000) + "." + rest.substr(1);
    }
    static std::string quoted(std::string const& text) {
        return nlohmann::ordered_json(text).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    }

    plan const& plan_;
    timeline const& timeline_;
    event_labels labels_;
};

} // namespace detail

/// Writes a plan's iteration in the Trace Event Format: one process, one thread per device, and one complete event per
/// piece of work, in microseconds to the nanosecond.
/// *Precondition:* the timeline is of this plan.
[[nodiscard]] inline std::string write_trace(plan const& p, timeline const& events) {
    return detail::trace_writer(p, events).text();
}

} // namespace heddle::json
