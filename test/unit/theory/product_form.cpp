// SPDX-License-Identifier: BSL-1.0
#include <heddle/program/program.hpp>
#include <heddle/theory/mesh_instruction.hpp>
#include <support/forms.hpp>

#include <doctest/doctest.h>

using namespace heddle;

namespace {

product_form pair_of(tensor_form outside, tensor_form inside) {
    product_form f(outside);
    f.push_back(inside);
    return f;
}

} // namespace

TEST_CASE("a conversion on an axis is that of one axis, unless an axis inside is in its way") {
    using test::M, test::P, test::R, test::S0, test::S1;
    program_builder b;
    auto const w = b.parameter("w", {4, 6});
    auto const indexed = index_program(b.finish(b.apply("sum", "(p q) -> (); 0", {w})));
    auto const& tensor = indexed.tensors[w];
    auto const converts = [&](product_form const& from, axis_number axis, tensor_form to) {
        return find_conversion(from, axis, to, tensor).has_value();
    };
    CHECK(converts(pair_of(S0, S0), 1, R));
    CHECK_FALSE(converts(pair_of(S0, S0), 0, R));
    CHECK_FALSE(converts(pair_of(R, S0), 0, S0));
    CHECK(converts(pair_of(S0, S1), 0, R));
    CHECK(converts(pair_of(P, S0), 0, R));
    CHECK(converts(pair_of(P, S0), 0, S1));
    CHECK_FALSE(converts(pair_of(P, S0), 0, S0));
    CHECK(converts(pair_of(M, S0), 0, P));
    CHECK_FALSE(converts(pair_of(S0, R), 1, R));
    CHECK_FALSE(converts(pair_of(S0, R), 0, P)); // nothing turns a shard into summands
    for (tensor_form from : {R, P, M, S0, S1})   // on one axis
        for (tensor_form to : {R, P, M, S0, S1}) CHECK(converts(from, 0, to) == find_conversion(from, to).has_value());
    CHECK(to_string(pair_of(P, S1)) == "(partial, shard(1))");
}

TEST_CASE("a mesh instruction acts on one axis, or is of all") {
    using test::P, test::R, test::S0;
    auto const convert = mesh_instruction::convert(3, pair_of(R, S0), 1, R);
    CHECK(convert.acting() == 1);
    CHECK(convert.tensor() == 3);
    CHECK(convert.from() == pair_of(R, S0));
    CHECK(convert.to() == pair_of(R, R));
    CHECK(is_keep(convert.axes[0]));
    auto const read = mesh_instruction::read(3, pair_of(S0, R), pair_of(R, P));
    CHECK_FALSE(read.acting().has_value());
    CHECK(read.from() == pair_of(S0, R));
    CHECK(read.to() == pair_of(R, P));
    CHECK(mesh_instruction(instruction::convert(3, R, P)) == mesh_instruction::convert(3, R, 0, P));
}
