// SPDX-License-Identifier: BSL-1.0
#include "operator_case.hpp"

#include <string>

using namespace heddle;
using namespace heddle::test;

namespace {

struct recurrent_form {
    static constexpr extent length = 3, batch = 4, width = 2, hidden = 2;
    extent layers, directions;
    bool biased, batch_first;
};

operator_case recurrent(char const* name, extent gates, std::size_t states, recurrent_form form) {
    constexpr extent length = recurrent_form::length, batch = recurrent_form::batch, width = recurrent_form::width,
                     hidden = recurrent_form::hidden;
    auto const sequence = [&](extent features) {
        return form.batch_first ? tensor_shape{batch, length, features} : tensor_shape{length, batch, features};
    };
    extent const runs = form.layers * form.directions;
    tensor_shape const state{runs, batch, hidden};
    std::vector<tensor_shape> operands{sequence(width)};
    auto const next = [&](tensor_shape dims) {
        operands.push_back(std::move(dims));
        return T(static_cast<tensor_id>(operands.size() - 1));
    };
    literal hx = next(state);
    if (states == 2) hx = list({hx, next(state)});
    std::vector<literal> weights;
    for (extent run = 0; run < runs; ++run) {
        weights.push_back(next({gates * hidden, run < form.directions ? width : form.directions * hidden}));
        weights.push_back(next({gates * hidden, hidden}));
        for (int k = 0; form.biased && k < 2; ++k) weights.push_back(next({gates * hidden}));
    }
    std::vector<tensor_shape> results(1 + states, state);
    results[0] = sequence(form.directions * hidden);
    return {std::string("torch.") + name,
            operands,
            {T(0), hx, list(weights), flag(form.biased), number(form.layers), real(0), flag(true),
             flag(form.directions == 2), flag(form.batch_first)},
            {},
            results};
}

} // namespace

TEST_CASE("recurrent layers are right, and parallel in samples") {
    constexpr recurrent_form forms[]{
        {1, 1, true, false}, {2, 2, true, true}, {2, 1, false, false}, {1, 2, false, true}};
    for (auto const& form : forms) {
        CAPTURE(form.layers);
        CAPTURE(form.directions);
        check(recurrent("rnn_tanh", 1, 1, form));
        check(recurrent("rnn_relu", 1, 1, form));
        check(recurrent("lstm", 4, 2, form));
        check(recurrent("gru", 3, 1, form));
    }
}

TEST_CASE("the second direction starts at the end, each from a state of its own") {
    constexpr extent length = recurrent_form::length, batch = recurrent_form::batch, hidden = recurrent_form::hidden;
    operator_check both(recurrent("rnn_tanh", 1, 1, {1, 2, false, false}), 1);
    auto const &y = both.results()[0], &last = both.results()[1];
    for (extent n = 0; n < batch; ++n)
        for (extent h = 0; h < hidden; ++h) {
            CHECK(y[((length - 1) * batch + n) * 2 * hidden + h] == last[n * hidden + h]);
            CHECK(y[n * 2 * hidden + hidden + h] == last[(batch + n) * hidden + h]);
        }
}
