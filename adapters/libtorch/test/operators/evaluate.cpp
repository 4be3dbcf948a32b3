// SPDX-License-Identifier: BSL-1.0
// Runs model files on given values with the reference kernels. Each line of the input names a model file and a file of
// values by source name; each line of the output is JSON: the loss and gradients by name, or what prevents them.
#include <heddle/execute/eigen_kernels.hpp>
#include <heddle/execute/random_sources.hpp>
#include <heddle/execute/single_device.hpp>
#include <heddle/json/model.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <exception>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace heddle;

nlohmann::json evaluated(std::string const& model_path, std::string const& values_path,
                         eigen_kernels<double> const& kernels) {
    auto const model = json::read_model(model_path);
    auto const& p = model.program;
    if (!model.warnings.empty()) return {{"error", model.warnings.front()}};
    auto const given = nlohmann::json::parse(std::ifstream(values_path));
    auto sources = random_sources<double>(p, 1);
    for (auto& [tensor, value] : sources) {
        auto const numbers = given.at(p.tensor(tensor).name).get<std::vector<double>>();
        if (static_cast<extent>(numbers.size()) != value.elements())
            return {{"error", "as many values are expected for " + p.tensor(tensor).name}};
        std::ranges::copy(numbers, value.data.begin());
    }
    auto const result = run_single_device(p, sources, kernels, 0);
    nlohmann::json gradients = nlohmann::json::object();
    for (auto const& [tensor, gradient] : result.gradients) gradients[p.tensor(tensor).name] = gradient.second.data;
    return {{"loss", result.loss}, {"gradients", gradients}};
}

} // namespace

int main() {
    heddle::eigen_kernels<double> const kernels;
    for (std::string model, values; std::cin >> model >> values;) {
        nlohmann::json result;
        try {
            result = evaluated(model, values, kernels);
        } catch (std::exception const& e) { result = {{"error", e.what()}}; }
        std::cout << result << '\n';
    }
}
