// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Writes an iteration of a plan as a trace for Chrome's and Perfetto's viewers.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cost/timeline.hpp>
#include <heddle/plan/plan.hpp>
#include <heddle/plan/staged_plan.hpp>
#include <heddle/plan/staged_run.hpp>

#include <string>

namespace heddle::json {

/// Writes a plan's iteration in the Trace Event Format: one process, one thread per device, and one complete event per
/// piece of work, in microseconds to the nanosecond.
/// *Precondition:* the timeline is of this plan.
[[nodiscard]] std::string write_trace(plan const& p, timeline const& events);

/// Writes an iteration of a plan of stages, with a thread for each stage and, if sends run beside, one for what it
/// sends.
/// *Precondition:* the timeline is of this plan.
[[nodiscard]] std::string write_trace(staged_plan const& p, staged_timeline const& events);

} // namespace heddle::json

#if HEDDLE_DEFINITIONS

#include <heddle/json/detail/event_labels.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace heddle::json {

namespace detail {

/// A trace in the Trace Event Format, of one process with numbered lines.
class trace_text {
public:
    explicit trace_text(provenance const& from) {
        text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                "{\"ph\":\"M\",\"pid\":0,\"name\":\"process_name\",\"args\":{\"name\":" +
                quoted(title_of(from)) + "}}";
    }

    /// Lines are shown in ascending order of their places.
    void name_line(std::size_t line, std::size_t place, std::string const& title) {
        std::string const start = ",\n{\"ph\":\"M\",\"pid\":0,\"tid\":" + std::to_string(line) + ",\"name\":\"thread_";
        text_ += start + "name\",\"args\":{\"name\":" + quoted(title) + "}}";
        text_ += start + "sort_index\",\"args\":{\"sort_index\":" + std::to_string(place) + "}}";
    }
    /// `arguments` is a JSON object.
    void add(std::size_t line, double start, double duration, std::string const& name, std::string const& category,
             std::string const& arguments) {
        // The end is rounded, not the duration, so that events which follow each other never overlap.
        std::int64_t const begin = nanoseconds(start), end = nanoseconds(start + duration);
        text_ += ",\n{\"ph\":\"X\",\"pid\":0,\"tid\":" + std::to_string(line) + ",\"ts\":" + microseconds(begin) +
                 ",\"dur\":" + microseconds(end - begin) + ",\"name\":" + quoted(name) + ",\"cat\":\"" + category +
                 "\",\"args\":" + arguments + "}";
    }
    [[nodiscard]] std::string finish() && { return std::move(text_) + "\n]}\n"; }

private:
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

    std::string text_;
};

} // namespace detail

HEDDLE_INLINE std::string write_trace(plan const& p, timeline const& events) {
    detail::trace_text trace(p.provenance);
    detail::event_labels labels(p);
    bool const interleaves = p.provenance.training.interleaves(),
               overlaps = interleaves || p.provenance.training.overlaps_gradients;
    // The line of collectives beside a device's work: those of gradients or, if micro-batches take turns, all.
    std::size_t const channel = p.devices.size();
    for (std::size_t d = 0; d < p.devices.size(); ++d) {
        trace.name_line(d, 2 * d, std::to_string(d) + " " + p.devices[d].name());
        if (overlaps)
            trace.name_line(channel + d, 2 * d + 1, std::to_string(d) + (interleaves ? " network" : " gradients"));
    }
    for (auto const& e : events.events) {
        auto const& label = labels.of(e);
        bool const is_beside =
            interleaves ? e.transfer.has_value() : overlaps && e.when == timeline_event::phase::gradient;
        trace.add(is_beside ? channel + e.device : e.device, e.start, e.duration, label.name, label.category,
                  label.arguments);
    }
    return std::move(trace).finish();
}

HEDDLE_INLINE std::string write_trace(staged_plan const& p, staged_timeline const& events) {
    detail::trace_text trace(p.provenance);
    std::size_t const places = p.places();
    for (std::size_t s = 0; s < places; ++s) {
        trace.name_line(s, 2 * s, detail::title_of(p, s, true));
        if (p.sends_beside) trace.name_line(places + s, 2 * s + 1, detail::sends_of(p, s));
    }
    for (auto const& e : events.events) {
        bool const is_beside = p.sends_beside && e.what == staged_event::kind::send;
        trace.add((is_beside ? places : 0) + e.stage % places, e.start, e.duration, detail::label_of(p, e),
                  detail::category_of(e), "{}");
    }
    return std::move(trace).finish();
}

} // namespace heddle::json

#endif
