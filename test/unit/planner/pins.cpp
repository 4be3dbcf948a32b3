// SPDX-License-Identifier: BSL-1.0
// Tensors pinned to forms.
#include "slow_links.hpp"

#include <heddle/clp/all.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/program/program.hpp>

#include <doctest/doctest.h>

#include <algorithm>

using namespace heddle;

TEST_CASE("a parameter is gathered along the factor that it is pinned to, its finest or not") {
    program_builder b;
    auto const x = b.input("x", {65536, 64});
    operator_options linear;
    linear.category = operator_class::matmul;
    auto const w = b.parameter("w", {256, 64});
    auto const y = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {x, w}, linear);
    auto const made = b.finish(b.apply("sum", "(b n) -> (); 0", {y}));
    auto const c = test::slow_links(4);
    for (int factor : {0, 1}) {
        CAPTURE(factor);
        tensor_form const shard = tensor_form::shard(static_cast<factor_number>(factor));
        hap_options o;
        o.pinned = {{x, tensor_form::shard(0)}, {w, shard}};
        auto const gathers = [&](plan const& p) {
            return std::ranges::any_of(p.steps, [&](plan_step const& s) {
                auto const& i = s.instruction;
                bool const gathered = i.is<instruction::convert>() || i.is<instruction::unshard>();
                return gathered && i.change()->tensor == w && i.change()->from == shard && i.change()->to.is_whole();
            });
        };
        auto const p = plan_hap(made, c, clp::ratio_solver{}, o);
        REQUIRE(p.exists());
        CHECK(gathers(p)); // far fewer bytes than those of the rows, which are cut too
        auto const verified = verify(made, p);
        CHECK_MESSAGE(verified, verified.problem);
    }
}
