// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Writes an iteration of a plan as a trace for Chrome's and Perfetto's viewers.
#pragma once

#include <heddle/cost/timeline.hpp>
#include <heddle/json/names.hpp>
#include <heddle/plan/buckets.hpp>
#include <heddle/plan/plan.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace heddle::json {

namespace detail {

/// What an event is called and what its arguments say, which is equal on every device.
struct trace_label {
    std::string name, category, arguments;
};

class trace_writer {
public:
    trace_writer(plan const& p, timeline const& events) : plan_(p), timeline_(events) {
        for (auto& bucket : gradient_buckets(p)) {
            auto const last = bucket.steps.back();
            if (bucket.steps.size() > 1) buckets_.emplace(last, std::move(bucket));
        }
    }

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
            auto const& label = label_of(e);
            bool const is_beside =
                interleaves ? e.transfer.has_value() : overlaps && e.when == timeline_event::phase::gradient;
            std::size_t const line = is_beside ? channel(e.device) : e.device;
            // The end is rounded, not the duration, so that events which follow each other never overlap.
            std::int64_t const start = nanoseconds(e.start), end = nanoseconds(e.start + e.duration);
            out += ",\n{\"ph\":\"X\",\"pid\":0,\"tid\":" + std::to_string(line) + ",\"ts\":" + microseconds(start) +
                   ",\"dur\":" + microseconds(end - start) + ",\"name\":" + label.name + ",\"cat\":\"" +
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
    static std::string dump(nlohmann::ordered_json const& v) {
        return v.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    }
    static std::string quoted(std::string const& text) { return dump(text); }

    /// Labels are made once per step, phase, kind of work and micro-batch.
    trace_label const& label_of(timeline_event const& e) {
        auto& label = labels_[{e.step, e.when, e.transfer, e.micro_batch}];
        if (label.name.empty()) label = make_label(e);
        return label;
    }

    [[nodiscard]] trace_label make_label(timeline_event const& e) const {
        using phase = timeline_event::phase;
        auto const& s = plan_.steps[e.step];
        auto const& i = s.acting();
        auto const* const compute = i.as<instruction::compute>();
        std::string const& subject = compute ? plan_.operators[compute->op] : plan_.tensors[i.change()->tensor].name;
        std::string name, category = "compute";
        nlohmann::ordered_json arguments{{"step", e.step}};
        if (plan_.provenance.training.interleaves() && !s.step.once && e.when != phase::update)
            arguments["micro_batch"] = e.micro_batch;
        if (e.transfer) {
            std::array const lists{&s.step.forward_transfers, &s.step.backward_transfers, &s.step.deferred_transfers,
                                   &s.step.update_transfers};
            auto const& t = lists.at(static_cast<std::size_t>(e.when))->at(*e.transfer);
            // The backward pass of a reshard brings the value again.
            bool const is_value = e.when == phase::forward || e.when == phase::update || i.is<instruction::reshard>();
            category = "communication";
            name = std::string(heddle::name(t.kind)) + (is_value ? " " : " gradient of ") + subject;
            auto const bucket = e.when == phase::gradient ? buckets_.find(e.step) : buckets_.end();
            if (bucket != buckets_.end()) name += " and " + std::to_string(bucket->second.steps.size() - 1) + " more";
            arguments["bytes"] = std::llround(bucket != buckets_.end() ? bucket->second.size.value : t.size.value);
        } else if (e.when == phase::update) {
            category = "update";
            name = compute ? subject + " gradients from factors" : "update " + subject;
        } else {
            name = compute ? subject : local_work(i) + " " + subject;
            if (e.when != phase::forward) name += " backward";
        }
        if (compute) {
            arguments["operands"] = forms(compute->operands.size(), [&](std::size_t k) { return s.operand(k); });
            arguments["results"] = forms(compute->results.size(), [&](std::size_t k) { return s.result(k); });
        } else {
            if (s.from() != s.to()) arguments["from"] = text_of(s.from());
            arguments["to"] = text_of(s.to());
        }
        return {quoted(name), std::move(category), dump(arguments)};
    }

    static std::string local_work(instruction const& i) {
        auto const& [t, from, to] = *i.change();
        if (i.is<instruction::read>()) return to == tensor_form::partial() ? "mask" : "read";
        auto const how = find_conversion(from, to);
        bool const masks = how && how->forward.local == conversion_half::work::scale;
        return masks ? "mask" : to.is_shard() ? "slice" : "convert";
    }
    static std::string text_of(product_form const& f) { return f.size() == 1 ? to_string(f[0]) : to_string(f); }
    template <class Form>
    static std::string forms(std::size_t count, Form const& form) {
        std::string text;
        for (std::size_t k = 0; k < count; ++k) text += (k ? ", " : "") + text_of(form(k));
        return text;
    }

    plan const& plan_;
    timeline const& timeline_;
    /// The buckets of several gradients, by the step after which each is sent.
    std::map<std::size_t, gradient_bucket> buckets_;
    std::map<std::tuple<std::size_t, timeline_event::phase, std::optional<std::size_t>, int>, trace_label> labels_;
};

} // namespace detail

/// Writes a plan's iteration in the Trace Event Format: one process, one thread per device, and one complete event per
/// piece of work, in microseconds to the nanosecond.
/// *Precondition:* the timeline is of this plan.
[[nodiscard]] inline std::string write_trace(plan const& p, timeline const& events) {
    return detail::trace_writer(p, events).text();
}

} // namespace heddle::json
