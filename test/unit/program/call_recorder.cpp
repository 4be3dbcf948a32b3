// SPDX-License-Identifier: BSL-1.0
#include <heddle/program/axioms.hpp>
#include <heddle/program/call_recorder.hpp>
#include <support/literals.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

using namespace heddle;
using namespace heddle::test;

namespace {

using tensors = std::vector<tensor_id>;

/// Makes matrices of 4 by 4, and concatenations of them.
struct joins {
    call_recorder recorder;
    tensors results{};

    tensor_id matrix() { return recorder.builder.parameter("w" + std::to_string(made_++), {4, 4}); }
    tensor_id join(tensors const& parts, std::int64_t axis, std::string const& target = "torch.cat") {
        literal::list list;
        tensor_shape dims{4, 4};
        dims[static_cast<std::size_t>(axis)] = 0;
        for (auto t : parts) {
            list.push_back(T(t));
            dims[static_cast<std::size_t>(axis)] += recorder.builder.tensor(t).shape[static_cast<std::size_t>(axis)];
        }
        results.push_back(recorder
                              .add({"join_" + std::to_string(made_++),
                                    target,
                                    {},
                                    {{"tensors", {std::move(list)}}, {"dim", number(axis)}},
                                    parts,
                                    {{dims}}})
                              .front());
        return results.back();
    }
    /// The operands of each concatenation.
    [[nodiscard]] std::vector<tensors> operands() {
        tensors sums;
        for (auto t : results) sums.push_back(recorder.builder.apply("sum", "(i j) -> (); 0", {t}));
        std::string rule = "()", terms = "0";
        for (std::size_t k = 1; k < sums.size(); ++k) rule += ", ()", terms += " + " + std::to_string(k);
        auto const p = recorder.builder.finish(recorder.builder.apply("add", rule + " -> (); " + terms, sums));
        CHECK(broken_axioms(p).empty());
        std::vector<tensors> found;
        for (operator_id o = 0; o < results.size(); ++o) found.emplace_back(p.operands(o).begin(), p.operands(o).end());
        return found;
    }

private:
    int made_ = 0;
};

} // namespace

TEST_CASE("a concatenation goes on from one of its first operands") {
    joins j;
    auto const a = j.matrix(), b = j.matrix(), c = j.matrix(), d = j.matrix();
    auto const one = j.join({a}, 1), two = j.join({a, b}, 1), three = j.join({a, b, c}, 1),
               four = j.join({a, b, c, d}, 1);
    CHECK(j.operands() == std::vector<tensors>{{a}, {a, b}, {two, c}, {three, d}});
    CHECK((one != two && j.recorder.builder.tensor(four).shape == tensor_shape{4, 16}));
}

TEST_CASE("concatenations that do not go on from each other stay as they are") {
    joins j;
    auto const a = j.matrix(), b = j.matrix(), c = j.matrix();
    j.recorder.rules["torch.concat"] = "(i j), (i k), (i l) -> (i _)";
    j.join({a, b}, 1);
    j.join({a, b}, 1);
    j.join({b, a, c}, 1);
    j.join({a, b, c}, 0);
    j.join({a, b, c}, 1, "torch.concat"); // by a rule of the user's
    j.join({a, b, c}, 1);
    auto const operands = j.operands();
    CHECK(operands.back() == tensors{j.results[0], c});
    CHECK(std::vector(operands.begin(), operands.end() - 1) ==
          std::vector<tensors>{{a, b}, {a, b}, {b, a, c}, {a, b, c}, {a, b, c}});
}
