// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A plan as a fixed-width report for people.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/plan/detail/report_text.hpp>
#include <heddle/plan/plan.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

struct table_options {
    /// Prints measured wall times. Without them equal plans give equal text.
    bool times = true;
    /// Prints the list of operators.
    bool program = true;
    /// Prints more than one screen: memory by kind, segments, how parameters are stored, operators, and the search.
    bool details = true;
};

namespace detail {

/// One operator of a plan, as the report lists it.
struct report_line {
    std::string name, split, forms;
    std::vector<std::string> before;
    /// Is equal for operators that do the same under names that differ in digits alone.
    std::string key;
};

class plan_report {
public:
    plan_report(plan const& p, table_options const& options)
        : plan_(p), options_(options), decimals_(decimals_for(p.cost())) {}

    std::string text();

    /// Returns the part that remains of the only stage of a plan which says all else itself.
    std::string text_of_stage();

private:
    void section(std::string const& title) { text_ += '\n' + title + '\n'; }

    void paragraph(std::string const& label, std::string_view words) { add_paragraph(text_, label, words); }

    [[nodiscard]] std::string in_seconds(double value) const { return fixed(value, decimals_); }

    void add_header();

    void add_times();

    void add_devices();

    /// Returns the ratios of a device in all segments.
    [[nodiscard]] std::string ratio(std::size_t d) const;

    void add_segments();

    void add_baselines();

    /// Says how parameters are stored, and whether they are gathered for use.
    void add_parameters();

    void add_program();

    /// Lists operators. Consecutive repetitions of a group are written once.
    void list(std::span<report_line const> lines, std::size_t depth, text_columns& table) const;

    /// Conversions before an operator; those of one kind are put together.
    struct conversions {
        std::string what, tensors;
        std::size_t count = 0;
        double size = 0;
    };

    [[nodiscard]] std::vector<report_line> lines() const;

    static std::string megabytes(double size) {
        return fixed(size / 1e6, size < 1e6 ? 3 : size < 1e7 ? 2 : size < 1e8 ? 1 : 0) + " MB";
    }

    static std::string conversion_name(instruction const& i);

    [[nodiscard]] std::string split_of(plan_step const& s) const;
    [[nodiscard]] std::string split_of(plan_step const& s, axis_number axis) const;

    /// Returns the forms of operands and results.
    static std::string forms_of(plan_step const& s);

    /// Removes numbers and what sets them off, so that `relu_1` and `relu` are alike.
    static std::string without_digits(std::string const& text);

    void add_search();

    void add_trajectory();

    void add_warnings();

    plan const& plan_;
    table_options const& options_;
    int decimals_;
    std::string text_;
};

} // namespace detail

/// Prints a plan as a report, which is the same in every locale: at most 80 columns, details at most 100.
/// *Precondition.* Steps name tensors and operators of the plan.
void print(std::ostream& out, plan const& p, table_options const& options = {});

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/plan/parameter_uses.hpp>
#include <heddle/plan/words.hpp>

namespace heddle::detail {

inline constexpr char const* legend_of_ratios = "ratio: a device's part of what is cut";

HEDDLE_INLINE std::string plan_report::text() {
    add_header();
    if (plan_.exists()) {
        add_words(text_, words_of(plan_));
        add_times();
        add_devices();
        if (options_.details) add_segments();
    }
    add_baselines();
    if (options_.details) {
        if (plan_.exists()) {
            add_parameters();
            if (options_.program) add_program();
        }
        add_search();
        add_trajectory();
    }
    add_warnings();
    if (plan_.exists()) add_legend(text_, legend_of_ratios);
    return std::move(text_);
}

HEDDLE_INLINE std::string plan_report::text_of_stage() {
    add_times();
    add_devices();
    add_legend(text_, legend_of_ratios);
    return std::move(text_);
}

HEDDLE_INLINE void plan_report::add_header() {
    auto const field = [&](std::string label, std::string const& value) {
        label.resize(23, ' ');
        if (!value.empty()) paragraph(label, value);
    };
    auto const& from = plan_.provenance;
    field("model", from.model);
    field("cluster",
          from.cluster +
              (plan_.devices.empty()
                   ? ""
                   : (from.cluster.empty() ? "" : ", ") +
                         count(plan_.is_on_mesh() ? plan_.mesh().device_count() : plan_.devices.size(), "device")));
    if (plan_.is_on_mesh()) field("mesh", to_string(plan_.mesh()));
    field("timed by", from.training.accumulator.name);
    if (from.training.interleaves())
        field("schedule", std::to_string(from.training.micro_batches) +
                              " micro-batches in turn, one's collectives beside another's computation");
    field("planner", from.planner.empty() ? "" : from.planner + " (heddle " + from.version + ")");
    field("status", status_text(plan_.status, plan_.which_limit, plan_.exists(), plan_.space));
    field("reason", plan_.reason);
    if (!plan_.exists()) return;
    field("seconds per iteration", in_seconds(plan_.cost()));
    field("lower bound", plan_.lower_bound > 0 ? in_seconds(plan_.lower_bound) : "none");
    if (plan_.lower_bound > 0) field("gap", fixed(100 * plan_.gap(), 2) + " %" + among(plan_.space));
    if (plan_.global_lower_bound) field("bound at any ratios", in_seconds(*plan_.global_lower_bound));
}

HEDDLE_INLINE void plan_report::add_times() {
    section(plan_.provenance.training.accumulated > 1 ? "Time by term, of one micro-batch" : "Time by term");
    text_columns table("lrr");
    table.add({"", "seconds", "%"});
    double const total = plan_.cost();
    auto const row = [&](std::string name, double value) {
        table.add({std::move(name), in_seconds(value), fixed(total > 0 ? 100 * value / total : 0, 1)});
    };
    row("compute", plan_.time.own_compute());
    if (plan_.time.inside() > 0)
        row(plan_.is_on_mesh() ? "communication along inner axes" : "communication inside groups", plan_.time.inside());
    row("forward communication", plan_.time.forward_communication);
    row("backward communication", plan_.time.backward_communication);
    auto const& training = plan_.provenance.training;
    row(training.overlaps_gradients || training.interleaves() || !training.accumulator.name.empty()
            ? "exposed gradient communication"
            : "gradient communication",
        plan_.time.gradient_communication);
    row("update", plan_.time.own_update());
    if (plan_.time.parameter_communication > 0)
        row("gathers of updated parameters", plan_.time.parameter_communication);
    row("total", total);
    text_ += table.print(2, 0);
}

HEDDLE_INLINE void plan_report::add_devices() {
    section(plan_.is_on_mesh()   ? "Places on the outermost axis (memory of each device in GB)"
            : plan_.has_groups() ? "Devices and device groups (memory of each in GB)"
                                 : "Devices (memory in GB)");
    auto const gigabytes = [](double value) { return fixed(value / 1e9, value < 1e12 ? 3 : 0); };
    text_columns table(options_.details ? "llrrrrrrrrrr" : "llrrrr");
    std::vector<std::string> head{"device", "type", "ratio"};
    if (options_.details) head.insert(head.end(), {"param", "grad", "optim", "input", "activ", "comm"});
    head.insert(head.end(), {"total", "limit", "used %"});
    table.add(std::move(head));
    auto const cells = [&](std::size_t d) {
        auto const& m = plan_.memory[d];
        double const limit = plan_.devices[d].memory_limit.value;
        std::vector<std::string> row{plan_.devices[d].name(), ratio(d)};
        if (options_.details)
            for (double const of_kind :
                 {m.parameters, m.gradients, m.optimizer, m.inputs, m.activations, m.communication})
                row.push_back(gigabytes(of_kind));
        row.insert(row.end(),
                   {gigabytes(m.total()), gigabytes(limit), fixed(limit > 0 ? 100 * m.total() / limit : 0, 1)});
        return row;
    };
    std::size_t const known =
        plan_.ratios.empty() ? 0 : std::min({plan_.devices.size(), plan_.memory.size(), plan_.ratios[0].size()});
    for (std::size_t first = 0; first < known;) {
        auto row = cells(first);
        std::size_t end = first + 1;
        while (end < known && cells(end) == row) ++end;
        row.insert(row.begin(), range_text(first, end));
        table.add(std::move(row));
        first = end;
    }
    text_ += table.print(2, 1, options_.details ? details_width : report_width);
}

HEDDLE_INLINE std::string plan_report::ratio(std::size_t d) const {
    auto const [least, most] = std::ranges::minmax(plan_.ratios, {}, [d](auto const& row) { return row[d]; });
    return fixed(least[d], 4) + (least[d] == most[d] ? "" : "-" + fixed(most[d], 4));
}

HEDDLE_INLINE void plan_report::add_segments() {
    if (plan_.ratios.size() < 2) return;
    section("Segments (ratios by device)");
    text_columns table("rlrl");
    table.add({"segment", "first operator", "operators", "ratios"});
    for (std::size_t s = 0; s < plan_.ratios.size(); ++s) {
        auto const first = algorithm::find(plan_.segments, s);
        if (first == plan_.segments.end()) continue;
        std::string ratios;
        for (double r : plan_.ratios[s]) ratios += (ratios.empty() ? "" : " ") + fixed(r, 4);
        table.add({std::to_string(s),
                   clip(plan_.operators[static_cast<std::size_t>(first - plan_.segments.begin())], 24),
                   std::to_string(algorithm::count(plan_.segments, s)), std::move(ratios)});
    }
    text_ += table.print(2, 3, details_width);
}

HEDDLE_INLINE void plan_report::add_baselines() {
    if (plan_.baselines.empty()) return;
    section("Baselines");
    text_ += baseline_table(plan_.baselines, plan_.cost(), decimals_);
    if (plan_.other_baselines.empty() || !options_.details) return;
    section("Under other options than the plan's, which may be dearer");
    text_ += baseline_table(plan_.other_baselines, plan_.cost(), decimals_);
}

HEDDLE_INLINE void plan_report::add_parameters() {
    std::map<std::vector<parameter_holding>, std::pair<std::size_t, double>> stored; // by axis
    for (auto const& use : parameter_uses(plan_)) {
        auto& [tensors, size] = stored[use.storage];
        ++tensors;
        size += plan_.tensors[use.tensor].size().value;
    }
    text_columns table("lrr");
    table.add({"stored", "tensors", "GB"});
    for (auto const& [of_axes, parameters] : stored) {
        std::string text;
        for (auto const kind : of_axes) text += (text.empty() ? "" : " | ") + std::string(name(kind));
        table.add({clip(text, 72), std::to_string(parameters.first), fixed(parameters.second / 1e9, 3)});
    }
    section("Parameters");
    text_ += table.print(2, 0);
}

HEDDLE_INLINE void plan_report::add_program() {
    section(plan_.is_on_mesh() ? "Program (by axis, outermost first: s split, w whole, p partial, m mirrored)"
                               : "Program (split: dimension and extent, or those of an operand that is summed over)");
    text_columns table("llll");
    table.add({"operator", "split", "operands -> results", "converted before"});
    list(lines(), 0, table);
    text_ += table.print(2, 2, details_width);
}

HEDDLE_INLINE void plan_report::list(std::span<report_line const> lines, std::size_t depth, text_columns& table) const {
    for (std::size_t at = 0; at < lines.size();) {
        std::size_t period = 1, repeats = 1;
        for (std::size_t p = 1; 2 * p <= lines.size() - at; ++p) {
            std::size_t r = 1;
            while (at + (r + 1) * p <= lines.size() &&
                   algorithm::equal(lines.subspan(at, p), lines.subspan(at + r * p, p), {}, &report_line::key,
                                    &report_line::key))
                ++r;
            if (r > 1 && r * p > (repeats > 1 ? repeats * period : 1)) {
                period = p;
                repeats = r;
            }
        }
        std::string const indent(2 * depth, ' ');
        if (period > 1) {
            table.add({indent + "x" + std::to_string(repeats) + ":"});
            list(lines.subspan(at, period), depth + 1, table);
        } else {
            auto const& line = lines[at];
            std::string const suffix = repeats > 1 ? " x" + std::to_string(repeats) : "";
            table.add({indent + clip(line.name, 24 - std::min<std::size_t>(14, indent.size() + suffix.size())) + suffix,
                       line.split, line.forms, line.before.empty() ? "" : line.before[0]});
            for (std::size_t k = 1; k < line.before.size(); ++k) table.add({"", "", "", line.before[k]});
        }
        at += period * repeats;
    }
}

HEDDLE_INLINE std::vector<report_line> plan_report::lines() const {
    std::vector<report_line> result;
    std::vector<conversions> before;
    auto const add = [&](report_line line) {
        line.key = without_digits(line.name) + '\n' + line.split + '\n' + line.forms;
        for (auto const& c : before) {
            std::string const size = ", " + megabytes(c.size);
            std::size_t const used = c.what.size() + 1 + size.size(), room = used < 28 ? 28 - used : 0;
            std::string const tensors = c.count > 1 ? " x" + std::to_string(c.count)
                                        : room < 6  ? ""
                                                    : " " + clip(c.tensors, room);
            line.before.push_back(c.what + tensors + size);
            line.key += '\n' + c.what + without_digits(c.tensors) + size;
        }
        before.clear();
        result.push_back(std::move(line));
    };
    for (auto const& s : plan_.steps) {
        auto const& i = s.acting();
        if (i.is<instruction::convert>() || i.is<instruction::unshard>()) {
            auto const& tensor = plan_.tensors[i.change()->tensor];
            std::string what = conversion_name(i);
            for (axis_number a = 0; a < s.axis_count() && plan_.is_on_mesh(); ++a)
                if (&s.on_axis(a) == &i) what += " on " + std::to_string(a);
            auto found = algorithm::find(before, what, &conversions::what);
            if (found == before.end()) found = before.insert(found, {std::move(what), {}, 0, 0});
            found->tensors += (found->count++ ? " " : "") + tensor.name;
            found->size += tensor.size().value;
        } else if (auto const* compute = i.as<instruction::compute>()) {
            if (auto const& rows = s.step.forward_transfers; !rows.empty()) {
                double size = 0;
                for (auto const& t : rows) size += t.size.value;
                if (sends_rows(s)) before.push_back({"rows sent and returned", "", 1, size});
                else before.push_back({"row statistics", "", rows.size(), size});
            }
            add({plan_.operators[compute->op], split_of(s), forms_of(s), {}, {}});
        }
    }
    if (!before.empty()) add({"(end)", "", "", {}, {}});
    return result;
}

HEDDLE_INLINE std::string plan_report::conversion_name(instruction const& i) {
    if (auto const* unshard = i.as<instruction::unshard>()) return unshard->is_resharded ? "gather twice" : "unshard";
    auto const how = find_conversion(i.change()->from, i.change()->to);
    if (!how) return "convert";
    if (how->forward.collective) return name(*how->forward.collective);
    if (how->backward.collective) return std::string("backward ") + name(*how->backward.collective);
    return how->forward.local == conversion_half::work::slice   ? "slice"
           : how->forward.local == conversion_half::work::scale ? "mask"
                                                                : "mirror";
}

HEDDLE_INLINE std::string plan_report::split_of(plan_step const& s) const {
    std::string text = split_of(s, 0);
    for (axis_number a = 1; a < s.axis_count(); ++a) text += " | " + split_of(s, a);
    return s.axis_count() > 1 ? clip(text, 24) : text;
}

HEDDLE_INLINE std::string plan_report::split_of(plan_step const& s, axis_number axis) const {
    auto const& i = s.computation(axis);
    auto const holds = [&](tensor_form f) { return algorithm::find(i.results, f) != i.results.end(); };
    if (i.loop < 0)
        return holds(tensor_form::partial()) ? "partial" : holds(tensor_form::mirrored()) ? "mirrored" : "whole";
    bool const sums = algorithm::none_of(i.results, &tensor_form::is_shard);
    if (axis > 0 || !s.step.share.is_split()) return sums ? "sum" : "split";
    auto const& tensor = plan_.tensors[s.step.share.tensor];
    auto const& cut = tensor.factors[static_cast<std::size_t>(s.step.share.factor)];
    bool const contiguous = cut.extent * cut.stride == tensor.shape[cut.dimension];
    return (sums                 ? "sum "
            : gathers_factors(i) ? "factors "
            : sends_rows(s)      ? "sent to "
                                 : "") +
           std::to_string(cut.dimension) + " of " + std::to_string(cut.extent) +
           (!cut.widths.empty() ? " in pieces"
            : contiguous        ? ""
                                : " strided");
}

HEDDLE_INLINE std::string plan_report::forms_of(plan_step const& s) {
    auto const word = [](tensor_form f) -> std::string {
        if (f.is_shard()) return "split";
        return f == tensor_form::replicated() ? "whole" : to_string(f);
    };
    auto const words = [&](product_form const& f) { // of several axes a letter each
        if (f.size() == 1) return word(f[0]);
        std::string text;
        for (tensor_form of_axis : f) text += word(of_axis)[0];
        return text;
    };
    auto const listed = [&](std::size_t count, auto const& form) {
        std::string text;
        for (std::size_t first = 0; first < count;) {
            std::size_t end = first + 1;
            while (end < count && words(form(end)) == words(form(first))) ++end;
            text +=
                (first ? ", " : "") + words(form(first)) + (end > first + 1 ? " x" + std::to_string(end - first) : "");
            first = end;
        }
        return text;
    };
    return clip(listed(s.computation().operands.size(), [&](std::size_t k) { return s.operand(k); }) + " -> " +
                    listed(s.computation().results.size(), [&](std::size_t k) { return s.result(k); }),
                28);
}

HEDDLE_INLINE std::string plan_report::without_digits(std::string const& text) {
    std::string result;
    for (char c : text) {
        if (c < '0' || c > '9') result += c;
        else if (result.ends_with('_') || result.ends_with('.')) result.pop_back();
    }
    return result;
}

HEDDLE_INLINE void plan_report::add_search() {
    auto const& s = plan_.statistics;
    section("Search");
    paragraph("  ", "expanded " + std::to_string(s.expanded) + ", generated " + std::to_string(s.generated) +
                        ", dominated " + std::to_string(s.dominated) + ", bounded " + std::to_string(s.bounded) +
                        ", kept " + std::to_string(s.kept));
    if (options_.times) paragraph("  ", fixed(s.seconds, 3) + " seconds");
}

HEDDLE_INLINE void plan_report::add_trajectory() {
    if (plan_.trajectory.empty()) return;
    section("Trajectory");
    text_columns table("lr");
    table.add({"origin", "seconds"});
    for (auto const& point : plan_.trajectory)
        table.add({point.origin, point.cost ? in_seconds(*point.cost) : "does not fit"});
    text_ += table.print(2, 0);
}

HEDDLE_INLINE void plan_report::add_warnings() {
    if (plan_.warnings.empty()) return;
    section("Warnings");
    for (auto const& w : plan_.warnings) paragraph("  - ", w);
}

} // namespace heddle::detail

namespace heddle {

HEDDLE_INLINE void print(std::ostream& out, plan const& p, table_options const& options) {
    auto const text = detail::plan_report(p, options).text();
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
}

} // namespace heddle

#endif
