// SPDX-License-Identifier: BSL-1.0
// What several devices of libtorch do together: collectives, plans beside their predicted times, what micro-batches
// that take turns hide, and how computation and communication slow each other.
// Usage: several_gpus cpu|cuda RANKS SEEDS BATCH MODEL...   It prints the parts of a page, and returns 1 if something
// in them is wrong, 2 if they are not whole. Ranks are threads, on the CPU in a dry run or, built with HEDDLE_HAS_CUDA,
// each on a GPU of its own. run.sh builds and calls it.
#include "arithmetic.hpp"
#include "device_rates.hpp"

#include <heddle/execute/devices.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/json/names.hpp>
#include <heddle/plan/simulate.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/planner/hidup.hpp>

#ifdef HEDDLE_HAS_CUDA
#include <heddle/nccl/communicator.hpp>
#include <heddle/nccl/store.hpp>

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#endif

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace heddle;
using namespace heddle::bench;

/// Runs `work(communicator)` on as many ranks. *Throws* the first exception that left `work`.
template <class Work>
void on_ranks(std::size_t ranks, Work const& work) {
#ifdef HEDDLE_HAS_CUDA
    if (device.is_cuda()) {
        auto const folder = std::filesystem::temp_directory_path() / ("heddle_gpus_" + std::to_string(::getpid()));
        std::filesystem::remove_all(folder);
        std::exception_ptr first;
        std::mutex lock;
        {
            std::vector<std::jthread> all;
            for (std::size_t r = 0; r < ranks; ++r)
                all.emplace_back([&, r] {
                    try {
                        auto const number = static_cast<c10::DeviceIndex>(r);
                        c10::cuda::set_device(number);
                        auto const computation = c10::cuda::getStreamFromPool(false, number);
                        c10::cuda::setCurrentCUDAStream(computation);
                        libtorch::device_scope const here{at::Device(at::kCUDA, number)};
                        nccl::file_store shared(folder);
                        nccl::communicator world(shared, r, ranks,
                                                 {.computation = computation.stream(), .time_out = seconds(60)});
                        work(world);
                        world.synchronise();
                    } catch (...) {
                        std::scoped_lock const guard(lock);
                        if (!first) first = std::current_exception();
                    }
                });
        }
        std::filesystem::remove_all(folder);
        if (first) std::rethrow_exception(first);
        return;
    }
#endif
    run_ranks(ranks, [&](in_process_communicator& world) {
        libtorch::device_scope const here(device);
        work(world);
    });
}

// ---- arithmetic

struct ranks_of_this_machine {
    static inline std::size_t count = 2;
    static std::size_t most() { return count; }
    template <class Work>
    static void run(std::size_t ranks, Work const& work) {
        on_ranks(ranks, work);
    }
};

/// Returns whether nothing is wrong.
bool arithmetic(std::size_t ranks, std::uint64_t seeds) {
    ranks_of_this_machine::count = ranks;
    auto const [all, kinds] = run_random<ranks_of_this_machine>(seeds);
    std::printf("\n### Arithmetic\n\nLoss and gradients in float64 beside the reference kernels on the CPU: random "
                "programs, of %zu kinds of operators, and random plans on up to %zu ranks%s.\n\n",
                kinds, ranks, device.is_cuda() ? " that exchange through NCCL" : "");
    return print(all);
}

// ---- time

/// Returns the largest of the ranks' numbers, on all of them, when all have come.
template <class World>
double largest(World& world, double mine) {
    tensor most(tensor_shape{}, static_cast<float>(mine));
    world.all_reduce(most.flat(), reduction::maximum);
    return static_cast<double>(most.number());
}

/// Returns the median seconds of what all ranks do, on the slowest of them.
template <class World, class Call>
double together(World& world, Call&& call) {
    using clock = std::chrono::steady_clock;
    constexpr double enough = 0.02;
    auto const timed = [&](int times) {
        (void)largest(world, 0);
        auto const begun = clock::now();
        for (int n = 0; n < times; ++n) call();
        synchronise();
        return largest(world, std::chrono::duration<double>(clock::now() - begun).count());
    };
    call();
    int const times = std::clamp(static_cast<int>(enough / std::max(timed(1), 1e-7)), 1, 1000);
    std::array<double, 5> all{};
    for (auto& t : all) t = timed(times) / times;
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

std::span<float const> in(tensor const& x) { return x.flat(); }

// ---- collectives

/// Measures collectives of these ranks, with tensors of up to this many bytes.
template <class Group>
void add_collectives(Group& group, std::size_t most, std::vector<sample>& samples) {
    auto const n = group.size();
    for (std::size_t size = std::size_t{1} << 12; size <= most; size *= 4) {
        std::size_t const each = size / sizeof(float) / n, piece = each / n;
        auto const of = [](std::size_t elements) { return tensor(tensor_shape{static_cast<extent>(elements)}, 1); };
        tensor whole = of(each * n), mine = of(each), sent = of(piece * n), received = of(piece * n);
        tensor const given = of(each), all = of(each * n);
        std::vector<std::size_t> const counts(n, each), pieces(n, piece);
        auto const measure = [&](collective kind, std::size_t payload, auto&& call) {
            samples.push_back({kind,
                               "",
                               static_cast<int>(n),
                               {},
                               {},
                               bytes(static_cast<double>(payload * sizeof(float))),
                               seconds(together(group, call))});
        };
        measure(collective::all_reduce, each * n, [&] { group.all_reduce(whole.flat()); });
        measure(collective::all_gather, each * n,
                [&] { group.all_gather_v(in(given), whole.flat(), counts, uneven::padded); });
        measure(collective::reduce_scatter, each * n,
                [&] { group.reduce_scatter_v(in(all), mine.flat(), counts, uneven::padded); });
        measure(collective::all_to_all, piece * n,
                [&] { group.all_to_all_v(in(sent), pieces, received.flat(), pieces); });
        measure(collective::broadcast, each * n, [&] { group.broadcast(whole.flat(), 0); });
    }
}

std::vector<collective_fit> collectives(std::size_t ranks, std::size_t most) {
    std::vector<sample> samples;
    on_ranks(ranks, [&](auto& world) {
        for (std::size_t n = 2; n < 2 * ranks; n *= 2) {
            std::vector<std::size_t> members(std::min(n, ranks));
            std::iota(members.begin(), members.end(), std::size_t{0});
            if (world.rank() < members.size()) {
                auto group = world.group(members);
                std::vector<sample> found;
                add_collectives(group, most, found);
                if (world.rank() == 0) samples.insert(samples.end(), found.begin(), found.end());
            }
            (void)largest(world, 0); // who is not of the group waits
        }
    });
    auto fits = fit_samples(samples).collectives;
    std::printf(
        "\n### Collectives\n\nOf equal shards, the slowest rank's time. Errors are of sizes that the fit was not "
        "given.\n\n| collective | ranks | sizes | latency, us | GB/s of the largest | median error | 95th percentile "
        "| worst |\n|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for (auto const& f : fits) {
        auto const slope = f.model.pieces.back().slope.value;
        std::printf("| %s | %d | %zu | %.1f | %.2f |", std::string(name(f.kind)).c_str(), f.ranks, f.quality.sizes,
                    1e6 * f.model.time(bytes(0)).value, slope > 0 ? 1e-9 / slope : 0);
        if (auto const& error = f.quality.held_out)
            std::printf(" %.1f %% | %.1f %% | %.0f %% |\n", 100 * error->median, 100 * error->percentile_95,
                        100 * error->worst);
        else std::printf(" - | - | - |\n");
    }
    std::erase_if(fits, [&](auto const& f) { return f.ranks != static_cast<int>(ranks); });
    return fits;
}

/// Gathers in which the first rank has twice as much as each of the others.
void uneven_gathers(std::size_t ranks, std::size_t most) {
    std::string how_grouped;
#ifdef HEDDLE_HAS_CUDA
    if (device.is_cuda())
        how_grouped = " NCCL " + std::to_string(nccl::runtime_version()) + " runs a grouped gather as " +
                      (nccl::fuses_grouped_gathers() ? "one kernel." : "several broadcasts.");
#endif
    std::printf("\n### Uneven gathers\n\nThe first rank has twice as much as each of the others.%s\n\n"
                "| bytes | padded, s | grouped, s |\n|---:|---:|---:|\n",
                how_grouped.c_str());
    on_ranks(ranks, [&](auto& world) {
        for (std::size_t size = std::size_t{1} << 12; size <= most; size *= 16) {
            std::vector<std::size_t> counts(ranks, size / sizeof(float) / (ranks + 1));
            counts[0] *= 2;
            tensor const mine(tensor_shape{static_cast<extent>(counts[world.rank()])}, 1);
            tensor whole(tensor_shape{static_cast<extent>(total_count(counts))});
            auto const gather = [&](uneven how) {
                return together(world, [&] { world.all_gather_v(in(mine), whole.flat(), counts, how); });
            };
            double const padded = gather(uneven::padded), grouped = gather(uneven::grouped);
            if (world.rank() == 0) std::printf("| %zu | %.3g | %.3g |\n", size, padded, grouped);
        }
    });
}

// ---- plans

/// Ranks that exchange nothing: what is left of an iteration's time is computation.
class silent_communicator : public waits_at_once<silent_communicator> {
public:
    using request = completed;

    silent_communicator(std::size_t rank, std::size_t size) : rank_(rank), size_(size) {}
    [[nodiscard]] std::size_t rank() const { return rank_; }
    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] request start_all_reduce(std::span<float>, reduction = reduction::sum) { return {}; }
    [[nodiscard]] request start_all_gather_v(std::span<float const>, std::span<float>, shard_counts, uneven) {
        return {};
    }
    [[nodiscard]] request start_reduce_scatter_v(std::span<float const>, std::span<float>, shard_counts, uneven) {
        return {};
    }
    [[nodiscard]] request start_all_to_all_v(std::span<float const>, shard_counts, std::span<float>, shard_counts) {
        return {};
    }
    [[nodiscard]] request start_broadcast(std::span<float>, std::size_t) { return {}; }

private:
    std::size_t rank_, size_;
};

struct seconds_of_plan {
    double whole = 0, computation = 0;
};

seconds_of_plan measured(program const& p, plan const& what) {
    auto const indexed = index_for(p, what);
    auto const sources = random_sources<float>(p, 1);
    seconds_of_plan result;
    on_ranks(what.devices.size(), [&](auto& world) {
        libtorch::kernels<float> const backend;
        auto const timed = [&](auto& ranks) {
            interpreter rank(p, indexed, what, ranks, backend);
            auto const placed = rank.place(sources);
            return together(world, [&] { (void)rank.run(placed); });
        };
        silent_communicator silent(world.rank(), world.size());
        seconds_of_plan const mine{timed(world), timed(silent)};
        if (world.rank() == 0) result = mine;
    });
    return result;
}

/// Times plans of HAP, and of HiDup, whose micro-batches take turns.
void time_plans(std::size_t ranks, extent batch, std::vector<collective_fit> const& fits,
                std::vector<named_program> const& models) {
    auto c = fitted(fit_samples(sampled(batch, models).samples()));
    c.machines = {{.type = 0, .devices = static_cast<int>(ranks)}};
    c.intra = network_link{bytes_per_second(1e9), seconds(1e-5)}; // of which nothing is derived, as all is measured
    for (auto const& f : fits) c.measured.emplace(f.kind, f.model);
    std::printf("\n### Plans\n\nForward and backward in fp32, batch %lld, on %zu devices, beside what the rates and "
                "collectives above predict; micro-batches in turn as they are simulated. What is not hidden is the "
                "time beyond that of the same ranks when they exchange "
                "nothing.\n\n| model | plan | measured, s | predicted, s | error | not hidden, s | predicted, s |\n"
                "|---|---|---:|---:|---:|---:|---:|\n",
                static_cast<long long>(batch), ranks);
    auto const refuse = [](named_program const& m, char const* kind, std::string const& why) {
        std::printf("| %s | %s | none: %s | | | | |\n", m.name.c_str(), kind, why.c_str());
    };
    auto const show = [&](named_program const& m, char const* kind, auto const& make) {
        try {
            plan what = make(m.program);
            if (!what.exists()) return refuse(m, kind, what.reason);
            for (auto& s : what.steps) s.step.update = {}; // no optimiser runs here
            auto const predicted = evaluate(what, c).time;
            auto const found = measured(m.program, what);
            // Micro-batches that take turns are as the simulator lets them run.
            double const total =
                what.provenance.training.interleaves() ? simulate(what, c).total : predicted.total() - predicted.update;
            std::printf("| %s | %s | %.5f | %.5f | %+.1f %% | %.5f | %.5f |\n", m.name.c_str(), kind, found.whole,
                        total, 100 * (total / found.whole - 1), found.whole - found.computation,
                        total - predicted.compute);
        } catch (input_error const& e) { refuse(m, kind, e.what()); } // such as too small a batch
    };
    auto const limited = [](planning_options o) {
        o.synthesis.search.limits.labels = o.last_search.limits.labels = 500;
        return o;
    };
    for (auto const& m : models) {
        named_program const whole{m.name, with_batch_size(m.program, batch)};
        show(whole, "HAP", [&](auto const& p) { return plan_hap(p, c, proportional_solver(), limited({})); });
        show(whole, "HiDup, in turn", [&](auto const& p) {
            return plan_hidup(p, c, proportional_solver(),
                              {.planning = limited(hidup_options().planning), .compares = false});
        });
    }
}

// ---- interference

/// Matrix products while an all-reduce is under way, and the other way round.
void interference(std::size_t ranks, extent width, std::size_t most) {
    std::printf("\n### Interference\n\nProducts of %lld x %lld matrices beside an all-reduce that takes longer.\n\n"
                "| alone: products, s | all-reduce, s | together, s | products slower | all-reduce slower |\n"
                "|---:|---:|---:|---:|---:|\n",
                static_cast<long long>(width), static_cast<long long>(width));
    on_ranks(ranks, [&](auto& world) {
        auto const a = at::rand({width, width}, tensor::options()), b = at::rand({width, width}, tensor::options());
        auto y = at::empty({width, width}, tensor::options());
        tensor data(tensor_shape{static_cast<extent>(most / sizeof(float))}, 1);
        double const reduce = together(world, [&] { world.all_reduce(data.flat()); });
        double const one = together(world, [&] { at::mm_out(y, a, b); });
        int const products = std::clamp(static_cast<int>(reduce / 2 / std::max(one, 1e-7)), 1, 1000);
        auto const compute = [&] {
            for (int n = 0; n < products; ++n) at::mm_out(y, a, b);
        };
        double const alone = together(world, compute);
        double computed = 0;
        double const both = together(world, [&] {
            synchronise();
            auto started = world.start_all_reduce(data.flat());
            auto const begun = std::chrono::steady_clock::now();
            compute();
            synchronise(); // of the stream of computation, on which nobody waits for the all-reduce yet
            computed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
            started.wait();
        });
        computed = largest(world, computed);
        if (world.rank() == 0)
            std::printf("| %.5f | %.5f | %.5f | %+.1f %% | %+.1f %% |\n", alone, reduce, both,
                        100 * (computed / alone - 1), 100 * (both / reduce - 1));
    });
}

} // namespace

int main(int count, char** arguments) {
    if (count < 6) {
        std::fputs("usage: several_gpus cpu|cuda RANKS SEEDS BATCH MODEL...\n", stderr);
        return 2;
    }
    try {
        bool const is_gpu = std::string_view(arguments[1]) == "cuda";
        if (is_gpu) device = at::Device(at::kCUDA, 0);
        else at::set_num_threads(1);
        libtorch::device_scope const here(device);
        auto const ranks = static_cast<std::size_t>(std::strtoull(arguments[2], nullptr, 10));
        bool const is_right = arithmetic(ranks, std::strtoull(arguments[3], nullptr, 10));
        auto const batch = std::strtoll(arguments[4], nullptr, 10);
        auto const most = std::size_t{1} << (is_gpu ? 28 : 18);
        auto const fits = collectives(ranks, most);
        uneven_gathers(ranks, most);
        time_plans(ranks, batch, fits, read_models({arguments + 5, arguments + count}));
        interference(ranks, is_gpu ? 4096 : 128, most);
        return is_right ? 0 : 1;
    } catch (std::exception const& e) {
        std::fprintf(stderr, "several_gpus: %s\n", e.what());
        return 2;
    }
}
