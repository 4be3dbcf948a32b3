// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Layers of recurrent cells with dropout between them, by operators of the catalogue.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/program/detail/composer.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace heddle::detail {

class composed_cells : public composer {
public:
    explicit composed_cells(composer const& c) : composer(c) {}

    /// One layer after the other, in training with dropout between two of them.
    results layers_with_dropout() {
        auto const input = view_.find_tensor(0, "input");
        std::vector<tensor_id> states, weights;
        if (auto const* hx = view_.find(1, "hx")) collect_tensors(*hx, states);
        if (auto const* params = view_.find(2, "params")) collect_tensors(*params, weights);
        extent const layers = view_.integer(4, "num_layers", 1),
                     directions = view_.flag(7, "bidirectional", false) ? 2 : 1;
        double const p = view_.number(5, "dropout").value_or(0);
        if (layers < 2 || p <= 0 || !view_.flag(6, "train", false) || !input || states.empty() || weights.empty() ||
            weights.size() % static_cast<std::size_t>(layers) != 0 || call().results.size() != states.size() + 1 ||
            algorithm::any_of(
                states, [&](tensor_id t) { return shape_of(t).size() != 3 || shape_of(t)[0] != layers * directions; }))
            return {};
        std::size_t const each = weights.size() / static_cast<std::size_t>(layers);
        std::vector<std::vector<tensor_id>> ends(states.size());
        tensor_id x = *input;
        for (extent layer = 0; layer < layers; ++layer) {
            if (layer > 0)
                x = step("torch.dropout", {{"input", of(x)}, {"p", {p}}, {"training", {true}}}, shape_of(x),
                         type_of(x));
            literal::list begins, own;
            std::vector<traced_call::result> made{call().results.front()};
            for (auto t : states) {
                begins.push_back(of(piece(t, 0, layer * directions, (layer + 1) * directions)));
                made.push_back({shape_of(begins.back().as<literal::tensor>()->id), type_of(t)});
            }
            auto const first = weights.begin() + static_cast<std::ptrdiff_t>(each) * layer;
            for (auto w = first; w != first + static_cast<std::ptrdiff_t>(each); ++w) own.push_back(of(*w));
            auto const found = steps(call().target.c_str(),
                                     {{"input", of(x)},
                                      {"hx", states.size() == 1 ? begins.front() : literal{begins}},
                                      {"params", {std::move(own)}},
                                      {"has_biases", {view_.flag(3, "has_biases", true)}},
                                      {"num_layers", whole(1)},
                                      {"dropout", {0.0}},
                                      {"train", {true}},
                                      {"bidirectional", {directions == 2}},
                                      {"batch_first", {view_.flag(8, "batch_first", false)}}},
                                     std::move(made));
            x = found.front();
            for (std::size_t k = 0; k < ends.size(); ++k) ends[k].push_back(found[k + 1]);
        }
        std::vector<tensor_id> all{x};
        for (std::size_t k = 0; k < ends.size(); ++k) all.push_back(joined(ends[k], 0, shape_of(states[k])));
        return all;
    }
};

} // namespace heddle::detail
