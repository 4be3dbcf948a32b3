// SPDX-License-Identifier: BSL-1.0
// Data parallelism in every result with gradient overlap and without it, and which of the two a plan is compared with.
#include <heddle/clp/all.hpp>
#include <heddle/plan/table.hpp>
#include <heddle/plan/words.hpp>
#include <heddle/planner/hap.hpp>
#include <support/cases.hpp>
#include <support/random_programs.hpp>
#include <support/traced_program.hpp>

#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <utility>

using namespace heddle;

namespace {

std::string const with = ", with gradient overlap", without = ", without gradient overlap";

/// Three square layers.
program layers(extent batch, extent width) {
    program_builder b;
    auto h = b.input("x", {batch, width});
    for (auto const* name : {"w0", "w1", "w2"}) {
        h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {h, b.parameter(name, {width, width})},
                    {.category = operator_class::matmul});
        h = b.apply("relu", "(b n) -> (b n)", {h}, {.saved_results = {0}});
    }
    return b.finish(b.apply("sum", "(b n) -> (); 0", {h}));
}

/// The network is so slow that a large batch stays where it is.
cluster four_equal(double memory) {
    cluster c;
    c.types = {
        {"A", bytes(memory), bytes_per_second(1e12), seconds(0), {{element_type::float32, {flops_per_second(1e12)}}}}};
    c.machines = {{0, 1, 4}};
    c.inter = network_link{bytes_per_second(1e9), seconds(1e-6)};
    return c;
}

/// A classifier with a mean of cross-entropies, labels and logits in the shapes that `reshapes` says.
program classifier(std::vector<std::string> const& reshapes) {
    test::traced_program t;
    extent const batch = 256, classes = 50;
    auto const x = t.builder.input("x", {batch, 64});
    auto labels = t.builder.input("y", {batch}, element_type::int64);
    auto const hidden = t.call("torch.relu", {test::T(t.linear(x, "a", 128))}, {batch, 128});
    auto logits = t.linear(hidden, "b", classes);
    for (auto const& how : reshapes) {
        auto const as = [&](tensor_id y, tensor_shape const& dims, element_type type) {
            std::vector<literal> arguments{test::T(y)};
            if (how != "contiguous" && how != "flatten") arguments.push_back(test::ints({dims.begin(), dims.end()}));
            return t.call(how, arguments, how == "contiguous" ? t.dims(y) : dims, {}, type);
        };
        logits = as(logits, {batch, classes}, element_type::float32);
        labels = as(labels, {batch}, element_type::int64);
    }
    return t.builder.finish(t.call("torch.nn.functional.cross_entropy", {test::T(logits), test::T(labels)}, {}));
}

/// A language model that foretells the next token: positions expanded to the batch, logits and labels shifted.
program language_model() {
    using test::T, test::ints, test::list, test::slice, test::whole;
    test::traced_program t;
    extent const batch = 8, length = 16, width = 32, words = 96;
    auto const ids = t.builder.input("ids", {batch, length}, element_type::int64),
               labels = t.builder.input("labels", {batch, length}, element_type::int64),
               numbers = t.builder.buffer("positions", {1, length}, element_type::int64);
    auto const table = t.builder.parameter("tokens", {words, width}),
               places = t.builder.parameter("places", {length, width});
    auto const expanded = t.call("expand", {T(numbers), ints({batch, -1})}, {batch, length}, {}, element_type::int64);
    auto const lookup = [&](tensor_id which, tensor_id in) {
        return t.call("torch.nn.functional.embedding", {T(which), T(in)}, {batch, length, width});
    };
    auto x = t.call("operator.add", {T(lookup(ids, table)), T(lookup(expanded, places))}, {batch, length, width});
    auto const inner = t.call("torch.nn.functional.gelu", {T(t.linear(x, "up", 128))}, {batch, length, 128});
    x = t.call("operator.add", {T(x), T(t.linear(inner, "down", width))}, {batch, length, width});
    auto const logits =
        t.call("torch.nn.functional.linear", {T(x), T(table)}, {batch, length, words}); // of tied parameters
    auto const shifted =
                   t.call("operator.getitem", {T(logits), list({whole(), slice({}, -1)})}, {batch, length - 1, words}),
               next = t.call("operator.getitem", {T(labels), list({whole(), slice(1, {})})}, {batch, length - 1}, {},
                             element_type::int64);
    extent const rows = batch * (length - 1);
    auto const flat = t.call("reshape", {T(t.call("contiguous", {T(shifted)}, t.dims(shifted))), ints({-1, words})},
                             {rows, words}),
               targets = t.call("view", {T(next), ints({-1})}, {rows}, {}, element_type::int64);
    return t.builder.finish(t.call("torch.nn.functional.cross_entropy", {T(flat), T(targets)}, {}));
}

/// Reduces one gradient after the other; otherwise all would be in one bucket, beside which there is nothing.
plan planned(program const& p, cluster const& c, bool overlaps) {
    return plan_hap(p, c, clp::ratio_solver{}, {.training = {.overlaps_gradients = overlaps, .bucket = bytes(0)}});
}

} // namespace

TEST_CASE("every result has data parallelism with and without gradient overlap") {
    for (std::uint64_t seed = 1; seed <= test::cases(30u); ++seed) {
        test::random_source random(seed + 52000);
        auto const made = layers(random.between(1, 12), random.between(1, 12));
        auto const devices = test::random_cluster(random);
        CAPTURE(seed);
        INFO(test::describe(made) << test::describe(devices));
        auto const beside = planned(made, devices, true), after = planned(made, devices, false);
        for (std::string const name : {"DP-EV", "DP-CP"}) {
            REQUIRE(beside.baselines.contains(name));
            REQUIRE(after.baselines.contains(name));
            CHECK(after.other_baselines.at(name + with) == beside.baselines.at(name));
            CHECK(beside.other_baselines.at(name + without) == after.baselines.at(name));
            // The programs are searched for, so that neither claim holds to the last digit.
            if (auto const least = after.baselines.at(name))
                CHECK(after.other_baselines.at(name + with).value() <= *least * (1 + 1e-9));
        }
        CHECK(after.other_baselines.size() == 2);
        CHECK(beside.other_baselines.size() == 2);
    }
}

TEST_CASE("a plan without gradient overlap may be dearer than data parallelism with it, which its report tells apart") {
    auto const p = layers(1 << 16, 256);
    auto const plain = planned(p, four_equal(32e9), false), overlapping = planned(p, four_equal(32e9), true);
    REQUIRE(plain.exists());
    for (auto const& [name, seconds] : plain.baselines) CHECK(plain.cost() <= seconds.value());
    CHECK(plain.other_baselines.at("DP-EV" + with).value() < 0.999 * plain.cost());
    CHECK(overlapping.cost() <= plain.other_baselines.at("DP-EV" + with).value());
    std::ostringstream report;
    print(report, plain);
    auto const text = report.str();
    auto const own = text.find("\nBaselines\n"),
               other = text.find("\nUnder other options than the plan's, which may be dearer\n");
    REQUIRE(own != std::string::npos);
    REQUIRE(other != std::string::npos);
    CHECK(own < other);
    CHECK(text.find("DP-EV, with gradient overlap") > other);

    auto const narrow = planned(p, four_equal(1e6), false);
    CHECK_FALSE(narrow.exists());
    CHECK_FALSE(narrow.baselines.at("DP-EV"));
    CHECK_FALSE(narrow.other_baselines.at("DP-EV" + with));
}

TEST_CASE("labels and logits in other shapes before the loss change neither the plan's cost nor its baselines") {
    auto const c = four_equal(32e9);
    auto const plain = planned(classifier({}), c, false);
    for (auto const* name : {"DP-EV", "DP-CP", "ZeRO-1", "ZeRO-2", "fully sharded", "tensor parallel"})
        CHECK(plain.baselines.at(name));
    for (std::vector<std::string> const& how :
         {std::vector<std::string>{"view"}, {"reshape"}, {"view", "contiguous"}}) {
        CAPTURE(how.back());
        auto const viewed = planned(classifier(how), c, false);
        CHECK(viewed.cost() == doctest::Approx(plain.cost()).epsilon(1e-9));
        CHECK(viewed.warnings.empty());
        REQUIRE(viewed.baselines.size() == plain.baselines.size());
        for (auto const& [name, seconds] : plain.baselines) {
            CAPTURE(name);
            CHECK(viewed.baselines.at(name).value() == doctest::Approx(seconds.value()).epsilon(1e-9));
        }
    }
}

TEST_CASE("a language model has all baselines: expanded positions, shifted tokens, flattened logits") {
    auto const p = planned(language_model(), four_equal(32e9), false);
    REQUIRE(p.exists());
    CHECK(p.warnings.empty());
    for (auto const* name : {"DP-EV", "DP-CP", "ZeRO-1", "ZeRO-2", "fully sharded", "tensor parallel"}) {
        CAPTURE(name);
        CHECK(p.cost() <= p.baselines.at(name).value() * (1 + 1e-9));
    }
}

TEST_CASE("tensor parallelism splits products even where copies are faster") {
    auto c = four_equal(32e9);
    c.inter = network_link{bytes_per_second(1e3), seconds(1)};
    auto const p = planned(layers(64, 256), c, false);
    CHECK(p.baselines.at("tensor parallel").value() > 10 * p.cost());
}

TEST_CASE("where a strategy has no program, the plan says why") {
    program_builder b;
    auto const y = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {b.input("x", {8, 4}), b.parameter("w", {4, 4})},
                           {.category = operator_class::matmul});
    auto const sorted = b.apply("sort", "(_ _) -> (_ _)", {y}, {.results = {{8, 4}}});
    auto const p = planned(b.finish(b.apply("sum", "(b n) -> (); 0", {sorted})), four_equal(32e9), false);
    REQUIRE(p.exists());
    for (auto const* name : {"DP-EV", "DP-CP", "ZeRO-1", "ZeRO-2", "fully sharded"}) {
        CAPTURE(name);
        CHECK_FALSE(p.baselines.at(name));
    }
    REQUIRE(p.warnings.size() == 4);
    CHECK(p.warnings.front() == "no baseline 'DP-EV': operator 'sort_1' has no computation that it allows");
}

TEST_CASE("words say that samples are cut along their sequence") {
    auto const words_at = [](extent batch, extent length) {
        program_builder b;
        auto h = b.input("x", {batch, length, 64});
        for (auto const* name : {"w0", "w1", "w2"}) { // other ways would send activations
            h = b.apply("linear", "(b s k), (n k) -> (b s n); 0*1", {h, b.parameter(name, {64, 64})},
                        {.category = operator_class::matmul});
            h = b.apply("relu", "(b s n) -> (b s n)", {h}, {.saved_results = {0}});
        }
        auto const p =
            plan_hap(b.finish(b.apply("sum", "(b s n) -> (); 0", {h})), four_equal(1e12), clp::ratio_solver{});
        std::string labels;
        for (auto const& word : words_of(p)) labels += word.label + ";";
        return labels;
    };
    CHECK(words_at(1, 65536) == "shares;data parallel;context parallel;");
    CHECK(words_at(65536, 1) == "shares;data parallel;");
}
