// SPDX-License-Identifier: BSL-1.0
#include "one_call.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace heddle;
using namespace heddle::test;

namespace {

/// The kind and attributes of one call on trained parameters, or buffers where they are no floating-point numbers.
struct recorded {
    std::string kind;
    operator_attributes attributes;
    std::vector<tensor_id> operands;
    operator_work work;
    bool is_known = false, is_differentiable = false;
};
recorded record(one_call const& c) {
    program_builder b;
    auto const added = add_call(b, traced(c, b));
    std::vector<detail::entries> const all{detail::numbered(c.results.front())};
    auto const sum = b.apply("sum", detail::rule_text(all, {{}}, "0"), {added.results.front()});
    auto const other = b.apply("sum", "(i) -> (); 0", {b.parameter("z", {2})});
    auto const p = b.finish(b.apply("add", "(), () -> (); 0 + 1", {sum, other}));
    auto const operands = p.operands(0);
    return {std::string(p.kind(0)),
            p.attributes(0),
            {operands.begin(), operands.end()},
            p.work(0),
            added.is_known,
            index_program(p).tensors[p.results(0)[0]].has_cotangent};
}

double attribute(recorded const& r, char const* name) {
    auto const found = r.attributes.find(name);
    return found == r.attributes.end() ? -1 : found->second.front();
}

} // namespace

TEST_CASE("where as a method takes a tensor's elements where a condition holds") {
    std::vector<element_type> const types{element_type::float32, element_type::boolean, element_type::float32};
    auto const method = record({"where", {{4}, {4}, {4}}, {T(0), T(1), T(2)}, {}, {{4}}, types});
    CHECK(method.operands == std::vector<tensor_id>{1, 0, 2});
    auto const function = record({"torch.where", {{4}, {4}, {4}}, {T(1), T(0), T(2)}, {}, {{4}}, types});
    CHECK(function.operands == method.operands);
    CHECK(message_of({"torch.where", {{4}, {4}, {4}}, {T(0), T(1), T(2)}, {}, {{4}}, types}) ==
          "operator 'op', argument 'condition': is of a floating-point type, expected truth values");
}

TEST_CASE("places, labels and numbers of rows are integers") {
    auto const check_refused = [](one_call c, std::string const& argument, std::size_t operand) {
        CAPTURE(c.target);
        c.operand_types.assign(c.operands.size(), element_type::float32);
        std::string const place = "operator 'op', argument '" + argument + "': is of ";
        CHECK(message_of(c) == place + "a floating-point type, expected integers");
        c.operand_types[operand] = element_type::boolean;
        if (c.target != "operator.getitem") CHECK(message_of(c) == place + "truth values, expected integers");
        for (auto type : {element_type::int8, element_type::int32, element_type::int64}) {
            c.operand_types[operand] = type;
            CHECK(record(c).is_known);
        }
    };
    check_refused({"torch.nn.functional.embedding", {{3}, {8, 4}}, {T(0), T(1)}, {}, {{3, 4}}}, "input", 0);
    check_refused({"torch.nn.functional.one_hot", {{3}}, {T(0), number(5)}, {}, {{3, 5}}}, "input", 0);
    check_refused({"torch.nn.functional.cross_entropy", {{8, 4}, {8}}, {T(0), T(1)}, {}, {{}}}, "target", 1);
    check_refused({"torch.nn.functional.nll_loss", {{8, 4}, {8}}, {T(0), T(1)}, {}, {{}}}, "target", 1);
    check_refused({"torch.index_select", {{8, 4}, {5}}, {T(0), number(0), T(1)}, {}, {{5, 4}}}, "index", 1);
    check_refused({"torch.gather", {{8, 4}, {8, 2}}, {T(0), number(1), T(1)}, {}, {{8, 2}}}, "index", 1);
    check_refused({"operator.getitem", {{8, 4}, {5}}, {T(0), T(1)}, {}, {{5, 4}}}, "index", 1);
    check_refused({"index_add", {{8, 4}, {5}, {5, 4}}, {T(0), number(0), T(1), T(2)}, {}, {{8, 4}}}, "index", 1);
    check_refused({"scatter_add", {{8, 4}, {8, 2}, {8, 2}}, {T(0), number(1), T(1), T(2)}, {}, {{8, 4}}}, "index", 1);
}

TEST_CASE("cross-entropy takes a target of the scores' shape for probabilities") {
    one_call c{"torch.nn.functional.cross_entropy", {{8, 4}, {8, 4}}, {T(0), T(1)}, {}, {{}}};
    CHECK(record(c).is_known);
    c.operand_types = {element_type::float32, element_type::int64};
    CHECK(message_of(c) == "operator 'op', argument 'target': is of no floating-point type, expected probabilities, or "
                           "labels of a dimension less");
}

TEST_CASE("variance takes dimensions, whether it is of a sample, and whether dimensions are kept") {
    auto const var = [](std::vector<literal> more, tensor_shape result,
                        std::map<std::string, literal, std::less<>> named = {}) {
        more.insert(more.begin(), T(0));
        return attribute(record({"torch.var", {{4, 3}}, more, std::move(named), {std::move(result)}}), "correction");
    };
    CHECK(var({}, {}) == 1);
    CHECK(var({flag(false)}, {}) == 0);
    CHECK(var({number(1), flag(true)}, {4}) == 1);
    CHECK(var({number(1), flag(false), flag(true)}, {4, 1}) == 0);
    CHECK(var({number(1), flag(true), flag(false)}, {4}) == 1);
    CHECK(var({number(1)}, {4, 1}, {{"correction", number(0)}, {"keepdim", flag(true)}}) == 0);
    CHECK(var({ints({1}), number(2), flag(true)}, {4, 1}) == 2);
}

TEST_CASE("variance with mean, and maxima with their places, have two results") {
    auto const both = add({"torch.var_mean", {{4, 3}}, {T(0), number(1)}, {}, {{4}, {4}}});
    CHECK(both.loops == "4 0:0 -> 0:0 1:0\n");
    CHECK(attribute(record({"torch.std_mean", {{4, 3}}, {T(0), flag(false)}, {}, {{}, {}}}), "correction") == 0);
    CHECK_FALSE(record({"torch.var_mean", {{4, 3}}, {T(0), number(1)}, {}, {{4}}}).is_known);
    auto const pool = record({"torch.nn.functional.max_pool2d_with_indices",
                              {{2, 3, 4, 4}},
                              {T(0), number(2)},
                              {},
                              {{2, 3, 2, 2}, {2, 3, 2, 2}}});
    CHECK(pool.kind == "max_pool2d");
    CHECK(pool.work.extra_saved.value == 0);
    CHECK(pool.work.saved_results == std::vector<std::uint8_t>{1});
}

TEST_CASE("several tensors of places are of adjacent dimensions, and have one shape or broadcast") {
    std::vector<element_type> const types{element_type::float32, element_type::int64, element_type::int64};
    auto const pick = [&](std::vector<literal> items, std::vector<tensor_shape> operands, tensor_shape result,
                          std::vector<element_type> of) {
        return one_call{"operator.getitem",  std::move(operands), {T(0), list(std::move(items))}, {},
                        {std::move(result)}, std::move(of)};
    };
    auto const both = add(pick({whole(), T(1), T(2)}, {{2, 4, 3}, {6, 1}, {5}}, {2, 6, 5}, types));
    CHECK(both.loops == "2 0:0 -> 0:0\n5 2:0 -> 0:2\n6 1:0 -> 0:1\n");
    CHECK(terms(both.rule) == "0");
    CHECK_FALSE(add(pick({T(1), whole(), T(2)}, {{2, 4, 3}, {5}, {5}}, {5, 4}, types))
                    .is_known); // apart, their dimensions come first
    CHECK_FALSE(add(pick({T(1), T(2)}, {{2, 4, 3}, {5}, {2}}, {5, 3},
                         {element_type::float32, element_type::int64, element_type::boolean}))
                    .is_known);
    CHECK(message_of(pick({T(1), T(2)}, {{2, 4, 3}, {5}, {4}}, {5, 3}, types)).find("operator 'op'") == 0);
}

TEST_CASE("losses take weights") {
    auto const loss = [](char const* name, std::vector<tensor_shape> operands,
                         std::map<std::string, literal, std::less<>> named) {
        return add(
            {std::string("torch.nn.functional.") + name, std::move(operands), {T(0), T(1)}, std::move(named), {{}}});
    };
    CHECK(loss("binary_cross_entropy", {{4, 3}, {4, 3}, {3}}, {{"weight", T(2)}}).loops ==
          "3+ 0:1 1:1 2:0 ->\n4+ 0:0 1:0 ->\n");
    CHECK(loss("binary_cross_entropy_with_logits", {{4, 3}, {4, 3}, {4, 1}, {3}},
               {{"weight", T(2)}, {"pos_weight", T(3)}})
              .loops == "3+ 0:1 1:1 3:0 ->\n4+ 0:0 1:0 2:0 ->\n");
    CHECK_FALSE(loss("binary_cross_entropy", {{4, 3}, {4, 3}, {2, 4, 3}}, {{"weight", T(2)}}).is_known);
    CHECK(loss("cross_entropy", {{5, 3}, {5, 3}, {3}}, {{"weight", T(2)}}).loops == "5+ 0:0 1:0 ->\n");
}

TEST_CASE("a reduction over no dimension is over all") {
    CHECK(record({"sum", {{4, 3}}, {T(0), ints({})}, {}, {{}}}).is_known);
    CHECK(record({"mean", {{4, 3}}, {T(0)}, {{"dim", ints({})}}, {{}}}).is_known);
}

TEST_CASE("arguments that an entry does not read have no rule") {
    CHECK_FALSE(record({"torch.round", {{4}}, {T(0)}, {{"decimals", number(1)}}, {{4}}}).is_known);
    CHECK_FALSE(
        record({"torch.nn.functional.mse_loss", {{4}, {4}}, {T(0), T(1)}, {{"reduce", flag(false)}}, {{4}}}).is_known);
    CHECK_FALSE(
        record({"torch.nn.functional.mse_loss", {{4}, {4}}, {T(0), T(1)}, {{"size_average", flag(false)}}, {{}}})
            .is_known);
    CHECK_FALSE(
        record({"torch.nn.functional.mse_loss", {{4}, {4}}, {T(0), T(1)}, {{"reduction", text("banana")}}, {{}}})
            .is_known);
    CHECK_FALSE(
        record({"torch.nn.functional.pad", {{4}}, {T(0), ints({-1, 1}), text("circular")}, {}, {{4}}}).is_known);
    auto const truth = record({"bool", {{4}}, {T(0)}, {}, {{4}}, {}, element_type::boolean});
    CHECK(truth.kind == "to");
    CHECK(attribute(truth, "to_truth") == 1);
    CHECK(attribute(record({"long", {{4}}, {T(0)}, {}, {{4}}, {}, element_type::int64}), "truncate") == 1);
}

TEST_CASE("a detached tensor is a constant") {
    auto const r = record({"detach", {{4, 3}}, {T(0)}, {}, {{4, 3}}});
    CHECK(r.is_known);
    CHECK(r.work.backward.value == 0);
    CHECK_FALSE(r.is_differentiable);
    CHECK(record({"clone", {{4, 3}}, {T(0)}, {}, {{4, 3}}}).is_differentiable);
}

TEST_CASE("an einsum of several operands contracts two at a time") {
    extent const n = 512;
    auto const r =
        record({"torch.einsum", {{n, n}, {n, n}, {n, n}}, {text("ij,jk,kl->il"), T(0), T(1), T(2)}, {}, {{n, n}}});
    double const product = 2.0 * n * n * n;
    CHECK(r.work.forward.value == 2 * product);
    CHECK(r.work.backward.value == 4 * product);
    auto const outer =
        record({"torch.einsum", {{2, 3}, {3, 5}, {2, 5}}, {text("ij,jk,ik->"), T(0), T(1), T(2)}, {}, {{}}});
    CHECK(outer.work.forward.value == 2 * 2 * 3 * 5 + 2 * 2 * 5);
}

TEST_CASE("every extent of a rule follows from shapes, and a loss is computed") {
    program_builder b;
    auto const w = b.parameter("w", {8, 4});
    CHECK_THROWS_WITH_AS(b.apply("op", "(b (h k)) -> (b)", {w}, {.name = "open"}),
                         "operator 'open': the extent of index 'h' does not follow from the shapes", input_error);
    CHECK_NOTHROW(b.apply("op", "(b (h k)) -> (b)", {w}, {.extents = {{"h", 2}}}));
    program_builder scalar;
    auto const loss = scalar.parameter("loss", {});
    CHECK_THROWS_WITH_AS(static_cast<void>(scalar.finish(loss)),
                         "loss 'loss': is an input or parameter, expected the result of an operator", input_error);
}

TEST_CASE("some calls are another operator by another name") {
    std::vector<element_type> const masks(2, element_type::boolean), wholes(2, element_type::int64);
    auto const of_masks = [&](char const* target, std::size_t count) {
        std::vector<literal> arguments;
        for (tensor_id k = 0; k < count; ++k) arguments.push_back(T(k));
        return record(
            {target, std::vector<tensor_shape>(count, {4}), arguments, {}, {{4}}, masks, element_type::boolean});
    };
    CHECK(of_masks("operator.and_", 2).kind == "logical_and");
    CHECK(of_masks("operator.or_", 2).kind == "logical_or");
    CHECK(of_masks("operator.xor", 2).kind == "ne");
    CHECK(of_masks("operator.invert", 1).kind == "logical_not");
    CHECK(of_masks("torch.bitwise_and", 2).kind == "logical_and");
    auto const bits = record({"operator.and_", {{4}, {4}}, {T(0), T(1)}, {}, {{4}}, wholes, element_type::int64});
    CHECK(bits.is_known);
    CHECK(bits.kind == "and_");
    CHECK(attribute(record({"torch.bitwise_or", {{4}}, {T(0), number(3)}, {}, {{4}}, wholes, element_type::int64}),
                    "number") == 3);
    CHECK_FALSE(record({"operator.and_",
                        {{4}, {4}},
                        {T(0), T(1)},
                        {},
                        {{4}},
                        {element_type::int64, element_type::float32},
                        element_type::int64})
                    .is_known);
    CHECK_FALSE(record({"operator.invert", {{4}}, {T(0)}, {}, {{4}}, {element_type::int8}, element_type::int8})
                    .is_known); // perhaps without a sign
    CHECK(of_masks("torch.logical_xor", 2).kind == "ne");
    CHECK_FALSE(record({"torch.logical_xor", {{4}, {4}}, {T(0), T(1)}, {}, {{4}}, wholes, element_type::boolean})
                    .is_known); // not bit by bit
    CHECK(record({"torch.max", {{4}, {3, 4}}, {T(0), T(1)}, {}, {{3, 4}}}).kind == "maximum");
    CHECK(record({"torch.min", {{4}, {3, 4}}, {T(0)}, {{"other", T(1)}}, {{3, 4}}}).kind == "minimum");
    CHECK(record({"torch.subtract", {{4}, {4}}, {T(0), T(1)}, {}, {{4}}}).kind == "sub");
    auto const reversed = record({"torch.rsub", {{4}, {4}}, {T(0), T(1)}, {{"alpha", real(2)}}, {{4}}});
    CHECK(reversed.kind == "sub");
    CHECK(reversed.operands == std::vector<tensor_id>{1, 0});
    CHECK(attribute(reversed, "alpha") == 2);
    CHECK(attribute(record({"torch.rsub", {{4}}, {T(0), number(1)}, {}, {{4}}}), "number_is_first") == 1);
    CHECK(record({"torch.movedim", {{2, 3, 4}}, {T(0), number(0), number(-1)}, {}, {{3, 4, 2}}}).kind == "permute");
    CHECK(record({"torch.movedim", {{2, 3, 4}}, {T(0), ints({0, 1}), ints({2, 0})}, {}, {{3, 4, 2}}}).is_known);
    CHECK(record({"getattr", {{2, 3, 4}}, {T(0), text("mT")}, {}, {{2, 4, 3}}}).is_known);
    CHECK(record({"operator.getitem", {{2, 3}}, {T(0), none()}, {}, {{1, 2, 3}}}).is_known);
    CHECK(record({"torch.outer", {{2}, {3}}, {T(0), T(1)}, {}, {{2, 3}}}).work.forward.value == 12);
    CHECK(record({"torch.addmv", {{2}, {2, 3}, {3}}, {T(0), T(1), T(2)}, {}, {{2}}}).kind == "addmm");
    CHECK(record({"torch.addbmm", {{2, 5}, {7, 2, 3}, {7, 3, 5}}, {T(0), T(1), T(2)}, {}, {{2, 5}}}).kind == "addmm");
    CHECK(
        record({"torch.sort", {{2, 3}}, {T(0)}, {{"descending", flag(true)}, {"stable", flag(true)}}, {{2, 3}, {2, 3}}})
            .kind == "topk");
    auto const form =
        add({"torch.nn.functional.bilinear", {{7, 2}, {7, 3}, {5, 2, 3}, {5}}, {T(0), T(1), T(2), T(3)}, {}, {{7, 5}}});
    CHECK(terms(form.rule) == "0*1*2 + 3");
    CHECK(form.loops == "2+ 0:1 2:1 ->\n3+ 1:1 2:2 ->\n5 2:0 3:0 -> 0:1\n7 0:0 1:0 -> 0:0\n");
    CHECK(form.work.forward.value == 2 * 7 * 2 * 3 + 2 * 7 * 2 * 3 * 5);
    auto const chosen = record({"torch.where", {{4}}, {T(0), real(1), real(0)}, {}, {{4}}, {element_type::boolean}});
    CHECK(chosen.is_known);
    CHECK(attribute(record({"torch.full_like", {{4}}, {T(0), real(0.5)}, {}, {{4}}}), "value") == 0.5);
    CHECK_FALSE(record({"torch.ones_like", {{4}}, {T(0)}, {}, {{4}}}).is_differentiable);
    CHECK(record({"torch.nn.functional.prelu", {{2, 3}, {3}}, {T(0), T(1)}, {}, {{2, 3}}}).is_known);
    CHECK(record({"torch.nn.functional.glu", {{2, 6}}, {T(0)}, {}, {{2, 3}}}).is_known);
    CHECK(record({"torch.argmax", {{2, 6}}, {T(0), number(1)}, {}, {{2}}, {}, element_type::int64}).is_known);
}
