// SPDX-License-Identifier: BSL-1.0
// Operators beside PyTorch 2.15: what record_operators.py recorded of one call each, results and gradients.
#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/random_sources.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/json/file.hpp>
#include <heddle/pt2/all.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

using namespace heddle;

namespace {

constexpr double tolerance = 1e-10;

/// Sources with the recorded values.
source_values<double> recorded_sources(program const& p, nlohmann::json const& values) {
    auto sources = random_sources<double>(p, 1);
    for (auto& [tensor, value] : sources) {
        auto const numbers = values.at(p.tensor(tensor).name).get<std::vector<double>>();
        REQUIRE(static_cast<extent>(numbers.size()) == value.elements());
        std::ranges::copy(numbers, value.data.begin());
    }
    return sources;
}

void check_near(std::vector<double> const& found, std::vector<double> const& expected) {
    REQUIRE(found.size() == expected.size());
    double size = 1;
    for (double x : expected) size = std::max(size, std::abs(x));
    for (std::size_t n = 0; n < found.size(); ++n) CHECK(std::abs(found[n] - expected[n]) <= tolerance * size);
}

} // namespace

TEST_CASE("operators compute what PyTorch 2.15 recorded, and their gradients") {
    auto const recordings = nlohmann::json::parse(json::read_text("adapters/pt2/test/operator_recordings.json.gz"));
    eigen_kernels<double> const kernels;
    std::set<std::string> seen;
    for (auto const& recording : recordings.at("calls")) {
        auto const call = recording.at("call").get<std::string>();
        CAPTURE(call);
        seen.insert(call);
        try {
            auto const model = pt2::parse_model(recording.at("graph").dump(), "m");
            CHECK(model.warnings.empty());
            auto const& p = model.program;
            auto const result = run_single_device(p, recorded_sources(p, recording.at("values")), kernels);
            check_near({result.loss}, {recording.at("loss").get<double>()});
            std::map<std::string, std::vector<double>> gradients;
            for (auto const& [t, gradient] : result.gradients)
                gradients.emplace(p.tensor(t).name, gradient.second.data);
            for (auto const& [name, expected] : recording.at("gradients").items()) {
                CAPTURE(name);
                auto const numbers = expected.get<std::vector<double>>();
                auto const found = gradients.find(name); // none where it is zero
                check_near(found == gradients.end() ? std::vector<double>(numbers.size()) : found->second, numbers);
            }
        } catch (error const& e) { FAIL_CHECK(e.what()); }
    }
    CHECK(seen.size() == 267); // all but eleven of random numbers or none
}
