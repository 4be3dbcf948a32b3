// SPDX-License-Identifier: BSL-1.0
// heddle profile: what operators and collectives take, as samples for heddle fit.
#include "profile.hpp"
#include "../plan_input.hpp"
#include "measure.hpp"

#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>
#include <heddle/json/file.hpp>
#include <heddle/json/samples.hpp>
#include <heddle/plan/as_planned.hpp>
#include <heddle/theory/batch_split.hpp>
#include <heddle/theory/rescale.hpp>

#ifdef HEDDLE_HAS_MPI
#include <heddle/mpi/all.hpp>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

namespace heddle::cli {

namespace {

/// Returns the model, if one is given, with its batch, and with halves of it down to a sixteenth: whole operators,
/// and such as devices have that share the batch.
std::vector<program> sizes_of(profile_arguments const& a) {
    if (a.model.empty()) return {};
    auto const model = read_model(a.model, {});
    std::vector<program> sizes{model.program};
    auto const batch = split_along_batch(index_program(model.program)).places;
    for (extent part = 2; part <= 16; part *= 2)
        if (batch % part == 0) sizes.push_back(with_batch_size(model.program, batch / part));
    return sizes;
}

void require_devices(profile_arguments const& a, std::size_t processes) {
    if (a.devices.size() != 1 && a.devices.size() != processes)
        throw input_error("--devices", "names the types of " + std::to_string(a.devices.size()) +
                                           " processes, and there are " + std::to_string(processes));
}

void finish(profile_arguments const& a, std::vector<sample> const& samples) {
    json::write_file_atomically(a.out, json::to_text(samples));
    auto const operators = std::ranges::count_if(samples, [](sample const& s) { return !s.device.empty(); });
    std::printf("samples of operators: %td, of collectives: %td; fit them with\n"
                "  heddle fit --samples %s --cluster CLUSTER --out FITTED\n",
                operators, std::ssize(samples) - operators, printable(a.out, 1000).c_str());
}

} // namespace

int run_profile_alone(profile_arguments const& a) {
    require_devices(a, 1);
    if (a.model.empty()) throw input_error("--model", "is missing, and one process has no collectives to measure");
    json::require_writable(a.out);
    auto const sizes = sizes_of(a);
    finish(a, a.precision == "float32" ? profile_alone<float>(a, sizes) : profile_alone<double>(a, sizes));
    return done;
}

#ifdef HEDDLE_HAS_MPI
int run_profile_in_job(profile_arguments const& a, mpi::communicator& world) {
    require_devices(a, world.size());
    if (world.rank() == 0) json::require_writable(a.out);
    auto const sizes = sizes_of(a);
    auto const samples =
        a.precision == "float32" ? profile_in_job<float>(a, sizes, world) : profile_in_job<double>(a, sizes, world);
    constexpr std::size_t size = std::size_t{1} << 20;
    auto const both = measure_interference(world, a.repeats, size);
    if (world.rank() == 0) {
        finish(a, samples);
        std::printf(
            "an all-reduce of %zu bytes takes %.3g s, a computation %.3g s, and both at once %.3g s: %.0f %% of the "
            "shorter one is hidden\n",
            size, both.collective, both.computation, both.together, 100 * both.hidden());
    }
    return done;
}
#endif

} // namespace heddle::cli
