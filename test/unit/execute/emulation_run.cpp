// SPDX-License-Identifier: BSL-1.0
#include "emulation.hpp"
#include "kernels.hpp"

namespace heddle::test {

proof emulate(program const& p, plan const& what, std::uint64_t seed) {
    return prove(p, what, kernels(), {.seed = seed});
}

std::string describe(plan const& what) {
    std::string text = "  ranks: " + std::to_string(what.devices.size()) + "\n";
    for (auto const& s : what.steps) {
        auto const* const compute = s.instruction.as<instruction::compute>();
        text += "  " + describe(s.instruction) + (compute ? " (loop " + std::to_string(compute->loop) + ")\n" : "\n");
    }
    for (auto const& cut : what.cuts) {
        text += "  cut of " + std::to_string(cut.atoms) + ":";
        for (auto const& m : cut.members) text += " " + std::to_string(m.tensor) + "." + std::to_string(m.factor);
        text += " =";
        for (extent n : cut.counts) text += " " + std::to_string(n);
        text += "\n";
    }
    return text;
}

} // namespace heddle::test
