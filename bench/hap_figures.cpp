// SPDX-License-Identifier: BSL-1.0
// hap_figures FIGURE draws the figures of HAP (EuroSys '24) as far as a cost model can give them. No hardware is
// measured, and all figures but fig19 print the same wherever they run. In all of them gradients are reduced after the
// backward pass, as in HAP.
#include "hap/evaluation.hpp"
#include "hap/motivation.hpp"

#include <array>
#include <cstdio>
#include <exception>
#include <string_view>

namespace {

struct figure {
    std::string_view name, what;
    void (*print)();
};
constexpr std::array figures{
    figure{"fig2", "even ratios against compute-proportional ones", heddle::bench::figure_2},
    figure{"fig4", "padded gathers against grouped broadcasts", heddle::bench::figure_4},
    figure{"sfb", "sufficient factors against all-reduce, by batch", heddle::bench::sufficient_factors},
    figure{"fig13", "iterations on heterogeneous clusters", heddle::bench::figure_13},
    figure{"fig13-bandwidth", "the same, latencies left out", heddle::bench::figure_13_without_latencies},
    figure{"fig14", "iterations on homogeneous clusters", heddle::bench::figure_14},
    figure{"fig15", "ablation: programs, ratios, communication", heddle::bench::figure_15},
    figure{"fig16", "one model on all devices or two on parts", heddle::bench::figure_16},
    figure{"fig17", "experts in uneven numbers", heddle::bench::figure_17},
    figure{"fig19", "time of synthesis by depth", heddle::bench::figure_19}};

} // namespace

int main(int argc, char** argv) {
    try {
        for (auto const& f : figures)
            if (argc == 2 && f.name == argv[1]) return f.print(), 0;
    } catch (std::exception const& e) {
        std::fprintf(stderr, "hap_figures: %s\n", e.what());
        return 1;
    }
    std::fputs("usage: hap_figures FIGURE\n", stderr);
    for (auto const& f : figures) std::fprintf(stderr, "  %-15s %s\n", f.name.data(), f.what.data());
    return 2;
}
