// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A pipeline plan as a fixed-width report for people.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/plan/detail/report_text.hpp>
#include <heddle/plan/pipeline_plan.hpp>
#include <heddle/plan/table.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

namespace detail {

class pipeline_report {
public:
    pipeline_report(pipeline_plan const& p, table_options const& options)
        : plan_(p), options_(options), decimals_(decimals_for(p.cost())) {}

    std::string text();

private:
    void section(std::string const& title) { text_ += '\n' + title + '\n'; }
    [[nodiscard]] std::string in_seconds(double value) const { return fixed(value, decimals_); }
    static std::string gigabytes(bytes b) {
        return std::isfinite(b.value) ? fixed(b.value / 1e9, b.value < 1e12 ? 3 : 0) : "none";
    }

    void add_header();

    void add_stages();

    void add_devices();

    void add_search();

    pipeline_plan const& plan_;
    table_options const& options_;
    int decimals_;
    std::string text_;
};

} // namespace detail

/// Prints a pipeline plan as a report of at most 80 columns, which is the same in every locale.
/// *Precondition.* `validate(p)` passed.
void print(std::ostream& out, pipeline_plan const& p, table_options const& options = {});

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>
#include <heddle/plan/words.hpp>

namespace heddle::detail {

HEDDLE_INLINE std::string pipeline_report::text() {
    add_header();
    if (plan_.exists()) {
        add_words(text_, words_of(plan_));
        add_stages();
        add_devices();
    }
    if (!plan_.baselines.empty()) {
        section("Baselines");
        text_ += baseline_table(plan_.baselines, plan_.cost(), decimals_);
    }
    add_search();
    if (plan_.exists())
        add_legend(text_, algorithm::any_of(plan_.stages, [](auto const& s) { return s.boundary.value > 0; })
                              ? "entered in: what a micro-batch takes to come from the stage before"
                              : "");
    return std::move(text_);
}

HEDDLE_INLINE void pipeline_report::add_header() {
    auto const field = [&](std::string label, std::string const& value) {
        label.resize(23, ' ');
        if (!value.empty()) add_paragraph(text_, label, value);
    };
    auto const& from = plan_.provenance;
    field("model", from.model + (from.model.empty() ? "" : ", ") + count(plan_.layers.size(), "layer"));
    field("cluster", from.cluster + (from.cluster.empty() ? "" : ", ") + count(plan_.devices.size(), "device"));
    field("planner", from.planner + " (heddle " + from.version + ")");
    field("status", status_text(plan_.status, plan_.which_limit, plan_.exists(), plan_.space));
    field("reason", plan_.reason);
    if (!plan_.exists()) return;
    auto const copies = plan_.copies();
    field("pipeline",
          count(plan_.stages.size(), "stage") + ", " + std::to_string(copies) +
              (copies == 1 ? " copy, " : " copies, ") + std::to_string(plan_.micro_batches) +
              (plan_.micro_batches == 1 ? " micro-batch" : " micro-batches") +
              (plan_.micro_batch_size > 0 ? " of " + count(static_cast<std::size_t>(plan_.micro_batch_size), "sample")
                                          : ""));
    field("seconds per iteration", in_seconds(plan_.cost()));
    if (plan_.time.synchronisation.value > 0) field("  of it gradients", in_seconds(plan_.time.synchronisation.value));
    if (plan_.time.update.value > 0) field("  of it optimiser", in_seconds(plan_.time.update.value));
    field("idle", fixed(100 * plan_.bubble, 1) + " % of the pipeline's time");
    field("lower bound", plan_.lower_bound > 0 ? in_seconds(plan_.lower_bound) : "none");
    if (plan_.lower_bound > 0) field("gap", fixed(100 * plan_.gap(), 2) + " %" + among(plan_.space));
}

HEDDLE_INLINE void pipeline_report::add_stages() {
    section("Stages (milliseconds of one micro-batch)");
    text_columns table("rllrrl");
    table.add({"stage", "layers", "", "time", "entered in", "devices"});
    for (std::size_t s = 0; s < plan_.stages.size(); ++s) {
        auto const& stage = plan_.stages[s];
        auto const &first = plan_.layers[stage.first].name, &last = plan_.layers[stage.end - 1].name;
        std::string devices;
        for (auto const& group : stage.devices) devices += (devices.empty() ? "" : " ") + ranges_text(group);
        table.add({std::to_string(s), range_text(stage.first, stage.end),
                   clip(first + (stage.end - stage.first > 1 ? " - " + last : ""), 40),
                   fixed(stage.time.value * 1e3, 3),
                   stage.boundary.value > 0 ? fixed(stage.boundary.value * 1e3, 3) : "", devices});
    }
    text_ += table.print(2, 5);
}

HEDDLE_INLINE void pipeline_report::add_devices() {
    std::vector<std::string> places(plan_.devices.size(), "-");
    for (std::size_t s = 0; s < plan_.stages.size(); ++s)
        for (auto const& group : plan_.stages[s].devices)
            for (auto const d : group) places[d] = std::to_string(s);
    auto const cells = [&](std::size_t d) {
        auto const& device = plan_.devices[d];
        bool const has_limit = std::isfinite(device.memory_limit.value) && device.memory_limit.value > 0;
        return std::vector<std::string>{device.type, places[d], gigabytes(device.memory),
                                        gigabytes(device.memory_limit),
                                        has_limit ? fixed(100 * (device.memory / device.memory_limit), 1) : ""};
    };
    section("Devices (memory in GB)");
    text_columns table("llrrrr");
    table.add({"device", "type", "stage", "used", "limit", "used %"});
    for (std::size_t first = 0; first < plan_.devices.size();) {
        auto row = cells(first);
        std::size_t end = first + 1;
        while (end < plan_.devices.size() && cells(end) == row) ++end;
        row.insert(row.begin(), range_text(first, end));
        table.add(std::move(row));
        first = end;
    }
    text_ += table.print(2, 1);
}

HEDDLE_INLINE void pipeline_report::add_search() {
    section("Search");
    std::string counts;
    for (auto const& [name, number] : plan_.statistics)
        counts += (counts.empty() ? "" : ", ") + name + " " + std::to_string(number);
    if (!counts.empty()) add_paragraph(text_, "  ", counts);
    if (options_.times) add_paragraph(text_, "  ", fixed(plan_.seconds, 3) + " seconds");
    if (plan_.warnings.empty()) return;
    section("Warnings");
    for (auto const& w : plan_.warnings) add_paragraph(text_, "  - ", w);
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE void print(std::ostream& out, pipeline_plan const& p, table_options const& options) {
    auto const text = detail::pipeline_report(p, options).text();
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
}

} // namespace heddle

#endif
