// SPDX-License-Identifier: BSL-1.0
#include <heddle/program/index_rule.hpp>

#include <support/errors.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace heddle;

namespace {

/// Indices with their kinds: `b`, `k+` (reduction), `s!` (blocked).
std::string kinds(index_rule const& rule) {
    std::string text;
    for (auto const& index : rule.indices) {
        text += (text.empty() ? "" : " ") + index.name;
        if (index.kind == index_kind::reduction) text += '+';
        if (index.kind == index_kind::blocked) text += '!';
    }
    return text;
}

std::string extents(index_rule const& rule) {
    std::string text;
    for (auto const& index : rule.indices)
        text += (text.empty() ? "" : " ") + index.name + "=" + std::to_string(index.extent);
    return text;
}

} // namespace

TEST_CASE("an index is parallel in a result, a reduction without, and blocked where marked") {
    struct {
        std::string rule, expected;
    } const cases[] = {
        {"(b s k), (n k), (n) -> (b s n); 0*1 + 2", "b s k+ n"},
        {"(b c _ _) -> (b c _ _)", "b c _2! _3! _4! _5!"},
        {"(b !c) -> (b !c)", "b c!"},
        {"(b c) -> (b !c)", "b c!"},
        {"(b (g i) 1), ((g o) i) -> (b (g o) 1); 0*1", "b g i+ o"},
        {"(b)->();0", "b+"},
        {"-> (b)", "b"},
        {"  ( b   s )  ->  ( b )  ;  0  ", "b s+"},
        {"(b) -> (b), ()", "b"},
    };
    for (auto const& [rule, expected] : cases) {
        CAPTURE(rule);
        CHECK(kinds(parse_index_rule(rule)) == expected);
    }
}

TEST_CASE("terms are sums of products of operands") {
    auto const rule = parse_index_rule("(b k), (n k), (n) -> (b n); 0*1 + 2");
    CHECK(rule.terms == std::vector<std::vector<std::uint8_t>>{{0, 1}, {2}});
    CHECK(parse_index_rule("(b) -> (b)").terms.empty());
    CHECK(parse_index_rule("(b k), (n) -> (b n); _ + 1").terms == std::vector<std::vector<std::uint8_t>>{{}, {1}});
}

TEST_CASE("a wrong rule is refused with the place in it") {
    struct {
        std::string rule;
        int character;
        std::string expected;
    } const cases[] = {
        {"", 1, "'->'"},
        {"(b)", 4, "'->'"},
        {"(b) ->", 7, "a result"},
        {"(b -> (b)", 4, "an index name"},
        {"(b) -> (b", 10, "an index name"},
        {"b -> (b)", 1, "'('"},
        {"(b) -> (b) x", 12, "nothing more"},
        {"(2) -> (2)", 2, "an index name"},
        {"(b ()) -> (b)", 6, "an index name"},
        {"((h _) d) -> (d)", 5, "an index name"},
        {"(!) -> ()", 3, "an index name"},
        {"(b) -> (b); ", 13, "the number of an operand"},
        {"(b) -> (b); 1", 13, "the number of an operand"},
        {"(b) -> (b); 0 + 0", 17, "the number of an operand"},
        {"(b), (b) -> (b); 0*", 20, "the number of an operand"},
        {"(b), (b) -> (b); 0*0", 20, "the number of an operand"},
        {"(b), (b) -> (b); _ + _", 23, "one term '_' at most"},
        {"(b), (b) -> (b); 0 + _*1", 23, "nothing more"},
        {"(b), (b) -> (b); 0*1 + _", 25, "an operand in no term"},
    };
    for (auto const& [rule, character, expected] : cases) {
        CAPTURE(rule);
        auto const message = test::error_of([&] { static_cast<void>(parse_index_rule(rule)); });
        CAPTURE(message);
        CHECK(message.starts_with("index rule '" + rule + "', character " + std::to_string(character) + ": expected "));
        CHECK(message.find(expected) != std::string::npos);
    }
    std::string many = "(";
    for (int i = 0; i < 70000; ++i) many += "_ ";
    CHECK(test::error_of([&] {
              static_cast<void>(parse_index_rule(many + ") -> ()"));
          }).find("expected at most 4096 indices") != std::string::npos);
}

TEST_CASE("extents follow from shapes, and factored ones from what is given") {
    struct test_case {
        std::string rule;
        std::vector<tensor_shape> operands, results;
        index_extents given;
        std::string expected;
    };
    std::vector<test_case> const cases{
        {"(b k), (n k) -> (b n)", {{8, 4}, {3, 4}}, {}, {}, "b=8 k=4 n=3"},
        {"(b (h d)), ((h d)) -> (b h)", {{8, 12}, {12}}, {}, {{"h", 3}}, "b=8 h=3 d=4"},
        {"(b (h d)) -> (b h d)", {{8, 12}}, {{8, 3, 4}}, {}, "b=8 h=3 d=4"},
        {"((a b)), (a) -> (b)", {{12}, {4}}, {}, {}, "a=4 b=3"},
        {"(1 d) -> (b d)", {{1, 4}}, {{5, 4}}, {}, "d=4 b=5"},
        {"() -> (1)", {{}}, {}, {}, ""},
    };
    for (auto const& c : cases) {
        CAPTURE(c.rule);
        auto rule = parse_index_rule(c.rule);
        bind_extents(rule, c.operands, c.results, c.given);
        CHECK(extents(rule) == c.expected);
    }
    auto rule = parse_index_rule("(b (h d)), (t d) -> ((h t) 1 b)");
    CHECK(bind_extents(rule, std::vector<tensor_shape>{{2, 12}, {5, 4}}) == std::vector<tensor_shape>{{15, 1, 2}});
}

TEST_CASE("shapes that contradict a rule are refused") {
    struct test_case {
        std::string rule;
        std::vector<tensor_shape> operands, results;
        index_extents given;
        std::string expected;
    };
    std::vector<test_case> const cases{
        {"(b k), (n k) -> (b n)", {{8, 4}, {3, 5}}, {}, {}, "operand 1, dimension 1: extent 5"},
        {"(b k), (n k) -> (b n)", {{8, 4}, {3, 4}}, {{8, 4}}, {}, "result 0, dimension 1: extent 4"},
        {"(b k) -> (b)", {{8}}, {}, {}, "operand 0: has 1 dimensions, the rule expects 2"},
        {"(b k) -> (b)", {{8, 2}}, {{8, 1}}, {}, "result 0: has 2 dimensions, the rule expects 1"},
        {"(b) -> (b)", {{8}, {8}}, {}, {}, "has 1 operands, 2 were given"},
        {"(b) -> (b)", {{8}}, {{8}, {8}}, {}, "has 1 results, 2 were given"},
        {"(1) -> (1)", {{2}}, {}, {}, "operand 0, dimension 0: extent 2, the rule expects 1"},
        {"((h d)) -> (h)", {{12}}, {}, {}, "the extent of index 'h' does not follow"},
        {"((h d)) -> (h)", {{12}}, {}, {{"h", 5}}, "not a multiple of index 'h' = 5"},
        {"((h d)) -> (h)", {{12}}, {}, {{"h", 0}}, "index 'h': extent 0, expected at least 1"},
        {"((h d)) -> (h)", {{12}}, {}, {{"h", -3}}, "index 'h': extent -3, expected at least 1"},
        {"(b) -> (b _)", {{8}}, {{8, 0}}, {}, "extent 0, expected at least 1"},
        {"([p q]) -> (p), (q)", {{7}}, {{4}, {2}}, {}, "has extent 7, its pieces make 6"},
        {"([p q]) -> (p), (q)", {{4}}, {{4}, {2}}, {}, "has extent 4, its pieces make 6"},
        {"([p _ _]) -> (p)", {{7}}, {{4}}, {}, "does not follow"},
    };
    for (auto const& c : cases) {
        CAPTURE(c.rule);
        auto rule = parse_index_rule(c.rule);
        auto const message = test::error_of([&] { bind_extents(rule, c.operands, c.results, c.given); });
        CAPTURE(message);
        CHECK(message.find(c.expected) != std::string::npos);
    }
}

TEST_CASE("the blocked rule splits nothing") {
    auto const rule = blocked_rule(std::vector<tensor_shape>{{2, 3}, {}}, std::vector<tensor_shape>{{4}});
    CHECK(kinds(rule) == "_0! _1! _2!");
    CHECK(rule.operands.size() == 2);
    CHECK(rule.results.size() == 1);
    CHECK(rule.terms.empty());
}

TEST_CASE("statistics are forward if an operand has the mark, and backward if a result has it") {
    auto const marks = [](char const* text) {
        auto const rule = parse_index_rule(text);
        auto const& c = *std::ranges::find(rule.indices, "c", &loop_index::name);
        return std::pair<int, int>(c.forward_statistics, c.backward_statistics);
    };
    CHECK(marks("(b ~~c) -> (b ~c)") == std::pair(2, 1));
    CHECK(marks("(b ~~c), (b) -> ()") == std::pair(2, 0));
    CHECK(marks("(b ~c), (~~c) -> (b c)") == std::pair(2, 0)); // the most of any operand
    CHECK(marks("(b c) -> (b c)") == std::pair(0, 0));
    CHECK(parse_index_rule("(b ~~c) -> (b ~c)").indices[1].kind == index_kind::parallel);
    CHECK(parse_index_rule("(b ~~c) -> ()").indices[1].kind == index_kind::reduction);
    CHECK_THROWS_AS(std::ignore = parse_index_rule("(b ~) -> ()"), input_error);
    CHECK_THROWS_AS(std::ignore = parse_index_rule("(b ~~~~~~~~~c) -> ()"), input_error);
}

TEST_CASE("rows may be exchanged between an index of all results and one that is summed over") {
    auto const rule = parse_index_rule("(t c), (t k), (e c h), (e h d) -> (t d); 3; (t k c) @ e -> (t k d)");
    REQUIRE(rule.exchange);
    CHECK(rule.indices[rule.exchange->rows].name == "t");
    CHECK(rule.indices[rule.exchange->places].name == "e");
    CHECK(rule.exchange->sent.size() == 3);
    CHECK(rule.exchange->returned == indexed_access{{0}, {2}, {5}});
    CHECK(parse_index_rule("(t), (e) -> (t);; (t) @ e -> (t)").terms.empty());
    CHECK_FALSE(parse_index_rule("(t), (e) -> (t); 1").exchange);
    struct {
        std::string rule, expected;
    } const cases[] = {
        {"(t), (e) -> (t); 1; (t) e -> (t)", "expected '@'"},
        {"(t), (e) -> (t); 1; () @ e -> (t)", "expected an index of rows"},
        {"(t), (e) -> (t); 1; (t) @ f -> (t)", "expected an index of an operand"},
        {"(t), (e) -> (t); 1; (t u) @ e -> (t)", "expected an index of an operand"},
        {"(t), (e) -> (t); 1; (e) @ t -> (t)", "expected rows of an index that all results have"},
        {"(t), (e) -> (t), (); 1; (t) @ e -> (t)", "expected rows of an index that all results have"},
        {"(t), (e) -> (t e); 1; (t) @ e -> (t)", "expected rows that may be cut"},
        {"(t), (!e) -> (t); 1; (t) @ e -> (t)", "expected rows that may be cut"},
        {"(t e), (e) -> (t); 1; (t) @ e -> (t)", "expected operands that have either the rows or the places"},
    };
    for (auto const& [text, expected] : cases) {
        CAPTURE(text);
        CHECK(test::contains(test::error_of([&] { static_cast<void>(parse_index_rule(text)); }), expected));
    }
}
