// SPDX-License-Identifier: BSL-1.0
// heddle fit reads measurements and writes models of collectives and operators, alone or in a cluster.
#include "commands.hpp"
#include "output.hpp"

#include <heddle/base/printable.hpp>
#include <heddle/cluster/fit.hpp>
#include <heddle/cost/cost_model.hpp>
#include <heddle/html/fit_page.hpp>
#include <heddle/json/all.hpp>
#include <heddle/json/fit_report.hpp>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <utility>
#include <vector>

namespace heddle::cli {

namespace {

/// Returns how many devices the first machine of a cluster has, if it is one of several and has several.
int ranks_inside(cluster const& c) {
    int const devices = c.machines.front().planned_devices();
    return has_several_machines(c) && devices > 1 ? devices : 0;
}

/// Returns the number of ranks whose collectives are written: the one asked for, the cluster's, those inside a machine,
/// or the only one.
int choose_ranks(fit_arguments const& arguments, fit_report const& report, std::optional<cluster> const& base) {
    auto const measured = rank_counts(report);
    if (arguments.ranks) {
        if (!measured.contains(*arguments.ranks))
            throw input_error(arguments.samples, "has no collective on " + std::to_string(*arguments.ranks) + " ranks");
        return *arguments.ranks;
    }
    if (measured.empty()) return 1;
    if (base)
        for (int const ranks : {static_cast<int>(base->devices().size()), ranks_inside(*base)})
            if (measured.contains(ranks)) return ranks;
    if (measured.size() > 1 && !arguments.out.empty())
        throw input_error(arguments.samples, "has collectives on " + std::to_string(*measured.begin()) + " and on " +
                                                 std::to_string(*measured.rbegin()) +
                                                 " ranks, expected one number or the option --ranks");
    return *measured.rbegin();
}

/// Warns where the cluster predicts the samples worse than the fits do: what a fit leaves open is the device's.
std::vector<std::string> check_in_cluster(fit_report const& report, cluster const& c) {
    std::vector<std::string> warnings;
    for (auto const& f : report.operators) {
        auto const type = std::ranges::find(c.types, f.device, &device_type::name);
        if (type == c.types.end()) continue;
        cost_model const model(c, {{static_cast<std::size_t>(type - c.types.begin()), 1}}, f.type);
        kernel_kind kernel{f.type, f.category};
        if (f.of) kernel.operator_kind = f.of->kind, kernel.is_backward = f.of->is_backward;
        double worst = 0;
        for (auto const& p : f.points) {
            local_work const work{flops(p.work), bytes(p.size), bytes(0), true};
            worst = std::max(worst, std::abs(model.time(work, 0, kernel, false, 1) / p.time - 1));
        }
        constexpr double much = 0.05;
        if (worst > f.quality.in_sample.worst + much)
            warnings.push_back(json::subject(f) + ": off by up to " + std::to_string(std::lround(100 * worst)) +
                               " % in the cluster, where what was not fitted is the device's");
    }
    return warnings;
}

} // namespace

int run_fit(fit_arguments const& arguments) {
    for (auto const& file : {arguments.out, arguments.html})
        if (!file.empty()) json::require_writable(file);
    auto const samples = json::read_samples(arguments.samples);
    if (samples.empty())
        throw input_error(arguments.samples, "has no sample, expected at least one line after the header");
    std::optional<cluster> base;
    if (!arguments.cluster.empty()) base = json::read_cluster(arguments.cluster);

    auto const report = fit_samples(samples);
    auto warnings = json::warnings_of(report);
    auto const models = models_of(report, choose_ranks(arguments, report, base), base ? ranks_inside(*base) : 0);
    if (base) {
        auto const left_out = put_into(*base, models);
        auto const worse = check_in_cluster(report, *base);
        warnings.insert(warnings.end(), left_out.begin(), left_out.end());
        warnings.insert(warnings.end(), worse.begin(), worse.end());
    }
    if (!base && !models.across.models.empty())
        warnings.push_back("collectives along lines of machines are written into a cluster alone: see --cluster");
    std::vector<json::staged_file> files;
    if (!arguments.out.empty()) files.emplace_back(arguments.out, base ? json::to_text(*base) : json::to_text(models));
    if (!arguments.html.empty())
        files.emplace_back(arguments.html, html::fit_page(report, "What was fitted to " + arguments.samples, warnings));

    if (arguments.json) {
        std::cout << json::fit_summary(report, warnings) << '\n';
    } else {
        std::cout << json::fit_table(report);
        for (auto const& w : warnings) std::cerr << "warning: " << printable(w, 1000) << '\n';
    }
    deliver(std::move(files));
    return done;
}

} // namespace heddle::cli
