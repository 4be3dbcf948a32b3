// SPDX-License-Identifier: BSL-1.0
// heddle plan: model and cluster in; table, plan and trace out.
#include "commands.hpp"
#include "hidup.hpp"

#include <heddle/clp/all.hpp>
#include <heddle/heddle.hpp>
#include <heddle/json/all.hpp>

#ifdef HEDDLE_HAS_METIS
#include <heddle/metis/all.hpp>
#endif

#include <algorithm>
#include <charconv>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::cli {

namespace {

std::vector<segment_number> segments_of(program const& p, std::string const& text) {
    if (text.empty()) return {};
    if (text == "layers") return segments_by_layer(p);
    if (std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; })) {
#ifdef HEDDLE_HAS_METIS
        return metis::segments(p, text.size() > 5 ? 100'000 : std::stoul(text));
#else
        throw input_error("--segments", "a number of parts needs METIS, which this executable was built without");
#endif
    }
    std::vector<std::string> names;
    for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
        end = text.find(',', begin);
        names.push_back(text.substr(begin, end == std::string::npos ? end : end - begin));
    }
    return segments_from(p, names);
}

pinned_tensor pin_of(program const& p, std::string const& text) {
    auto const fail = [&](std::string const& problem) { throw input_error("--pin " + text, problem); };
    auto const at = text.rfind('=');
    if (at == std::string::npos) fail("expected NAME=FORM");
    std::string const name = text.substr(0, at), wanted = text.substr(at + 1);
    tensor_id t = 0;
    while (t < p.tensor_count() && p.tensor(t).name != name) ++t;
    if (t == p.tensor_count()) fail("there is no tensor '" + name + "'");
    auto const tensor = index_program(p).tensors[t];
    for (form f : {form::replicated(), form::mirrored(), form::partial()})
        if (to_string(f) == wanted) {
            if (!is_possible(f, tensor)) fail("the tensor cannot be " + wanted);
            return {t, f};
        }
    int dimension = -1;
    if (wanted.starts_with("shard(") && wanted.ends_with(")")) {
        auto const digits = std::string_view(wanted).substr(6, wanted.size() - 7);
        auto const [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), dimension);
        if (error != std::errc() || end != digits.data() + digits.size()) dimension = -1;
    }
    if (dimension < 0) fail("expected replicated, mirrored, partial or shard(DIMENSION)");
    auto const cut = std::ranges::find(tensor.factors, dimension, &factor::dimension);
    if (cut == tensor.factors.end()) fail("the tensor cannot be cut along dimension " + std::to_string(dimension));
    return {t, form::shard(static_cast<factor_number>(cut - tensor.factors.begin()))};
}

} // namespace

int run_plan(plan_arguments const& arguments) {
    auto model = json::read_model(arguments.model);
    if (arguments.batch) model.program = with_batch_size(model.program, *arguments.batch);
    if (!arguments.element_type.empty()) model.program = model.program.retyped(json::value_of(json::element_types, arguments.element_type).value());
    auto const cluster_text = json::read_text(arguments.cluster);
    cluster c = json::parse_cluster(cluster_text, arguments.cluster);
    if (arguments.group_machines) c = with_grouped_machines(std::move(c));
    if (arguments.memory_limit)
        for (auto& type : c.types) type.memory = std::min(type.memory, bytes(*arguments.memory_limit));

    for (auto const& file : {arguments.out, arguments.trace})
        if (!file.empty()) json::require_writable(file);

    hap_options options;
    options.training.optimizer_bytes_per_element = arguments.optimizer_bytes;
    options.training.overlaps_gradients = arguments.overlap;
    options.segments = segments_of(model.program, arguments.segments);
    for (auto const& pin : arguments.pins) options.pinned.push_back(pin_of(model.program, pin));
    options.synthesis.search.label_limit = arguments.label_limit;
    options.last_search.label_limit = 20 * arguments.label_limit;
    options.time_limit_seconds = arguments.time_limit;
    if (is_watched())
        options.progress = [](trajectory_point const& point) {
            std::cerr << "\r\033[K" << point.origin << ": ";
            if (point.cost) std::cerr << *point.cost << " s" << std::flush;
            else std::cerr << "does not fit" << std::flush;
        };
    plan result = arguments.planner == "hidup" ? plan_interleaved(model.program, c, options, arguments) : find_plan(model.program, c, clp::ratio_solver{}, options);
    if (is_watched()) std::cerr << "\r\033[K";
    result.provenance.model = model.name;
    result.provenance.model_digest = model.digest;
    result.provenance.cluster_digest = json::digest(cluster_text);
    result.warnings.insert(result.warnings.begin(), model.warnings.begin(), model.warnings.end());

    // The files first: what is printed was also written.
    if (result.exists()) {
        if (!arguments.out.empty()) json::write_file_atomically(arguments.out, json::write_plan(result));
        if (!arguments.trace.empty()) json::write_file_atomically(arguments.trace, json::write_trace(result, timeline_of(result, c)));
    }
    if (arguments.json) {
        std::cout << json::plan_summary(result) << '\n';
    } else {
        print(std::cout, result, {.times = arguments.times});
    }
    std::cout.flush();
    if (!std::cout) throw file_error("standard output cannot be written");
    switch (result.status) {
    case search::status::infeasible: return infeasible;
    case search::status::limit: return result.exists() ? done : nothing_found;
    case search::status::optimal:
    case search::status::feasible: break;
    }
    return done;
}

} // namespace heddle::cli
