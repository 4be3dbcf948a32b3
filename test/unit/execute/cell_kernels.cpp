// SPDX-License-Identifier: BSL-1.0
#include "operator_case.hpp"

#include <string>

using namespace heddle;
using namespace heddle::test;

TEST_CASE("recurrent cells are right, and parallel in samples and hidden units") {
    for (bool const biased : {true, false}) {
        CAPTURE(biased);
        auto const cell = [&](char const* name, extent gates, bool pair) {
            std::vector<tensor_shape> operands{{4, 3}, {4, 2}};
            literal state = T(1);
            if (pair) {
                operands.push_back({4, 2});
                state = list({T(1), T(2)});
            }
            auto const next = [&](tensor_shape dims) {
                operands.push_back(std::move(dims));
                return T(static_cast<tensor_id>(operands.size() - 1));
            };
            std::vector<literal> arguments{T(0), state};
            arguments.push_back(next({gates * 2, 3}));
            arguments.push_back(next({gates * 2, 2}));
            for (int k = 0; biased && k < 2; ++k) arguments.push_back(next({gates * 2}));
            return operator_case{std::string("torch.") + name,
                                 operands,
                                 arguments,
                                 {},
                                 std::vector<tensor_shape>(pair ? 2 : 1, tensor_shape{4, 2})};
        };
        check(cell("rnn_tanh_cell", 1, false));
        check(cell("rnn_relu_cell", 1, false));
        check(cell("lstm_cell", 4, true));
        check(cell("gru_cell", 3, false));
    }
}
