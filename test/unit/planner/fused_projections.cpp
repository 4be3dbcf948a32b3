// SPDX-License-Identifier: BSL-1.0
// A projection that is packed in one matrix is planned as cheaply as several: by heads, by hidden units.
#include <heddle/clp/all.hpp>
#include <heddle/plan/verify.hpp>
#include <heddle/planner/hap.hpp>
#include <heddle/program/detail/joined_slices.hpp>
#include <support/traced_program.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace heddle;
using namespace heddle::test;

namespace {

namespace sizes {
extent constexpr batch = 8, length = 64, heads = 8, head = 32, width = heads * head, hidden = 1024;
}

using tensors = std::vector<tensor_id>;

/// Queries, keys and values, or gate and value: `count` of `each`, of a matrix each or of one for all.
tensors projected(traced_program& t, tensor_id x, std::string const& how, extent count, extent each) {
    extent const all = count * each;
    tensor_shape piece = t.dims(x), packed = piece;
    piece.back() = each;
    packed.back() = all;
    std::vector<tensor_shape> const pieces(static_cast<std::size_t>(count), piece);
    tensors result;
    if (how == "separate") {
        for (extent n = 0; n < count; ++n) result.push_back(t.linear(x, "p" + std::to_string(n), each));
        return result;
    }
    if (how == "addmm") { // a weight of inputs by outputs, as GPT-2 has it
        auto const weight = t.builder.parameter("packed.weight", {sizes::width, all}),
                   bias = t.builder.parameter("packed.bias", {all});
        auto const rows =
            t.call("view", {T(x), ints({-1, sizes::width})}, {sizes::batch * sizes::length, sizes::width});
        auto const y = t.call("torch.addmm", {T(bias), T(rows), T(weight)}, {sizes::batch * sizes::length, all});
        return t.calls("split",
                       {T(t.call("view", {T(y), ints({sizes::batch, sizes::length, all})}, packed)), number(each)},
                       pieces, {{"dim", number(2)}});
    }
    auto const y = t.linear(x, "packed", all);
    if (how == "split") return t.calls("split", {T(y), number(each)}, pieces, {{"dim", number(2)}});
    if (how == "chunk") return t.calls("torch.chunk", {T(y), number(count)}, pieces, {{"dim", number(-1)}});
    if (how == "slices") {
        for (extent n = 0; n < count; ++n)
            result.push_back(t.call(
                "operator.getitem",
                {T(y), test::list({{literal::ellipsis{}}, slice(n * each, n + 1 < count ? (n + 1) * each : all)})},
                piece));
        return result;
    }
    auto const of =
        t.call("unflatten", {T(y), number(-1), ints({count, each})}, {sizes::batch, sizes::length, count, each});
    if (how == "unbind") return t.calls("unbind", {T(of), number(2)}, pieces);
    REQUIRE(how == "select");
    for (extent n = 0; n < count; ++n) result.push_back(t.call("select", {T(of), number(2), number(n)}, piece));
    return result;
}

program attention(std::string const& how) {
    traced_program t;
    auto const x = t.builder.input("x", {sizes::batch, sizes::length, sizes::width});
    tensors by_head;
    for (auto p : projected(t, x, how, 3, sizes::width)) {
        auto const split = t.call("view", {T(p), ints({sizes::batch, sizes::length, sizes::heads, -1})},
                                  {sizes::batch, sizes::length, sizes::heads, sizes::head});
        by_head.push_back(t.call("transpose", {T(split), number(1), number(2)},
                                 {sizes::batch, sizes::heads, sizes::length, sizes::head}));
    }
    auto const mixed =
        t.call("torch.nn.functional.scaled_dot_product_attention", {T(by_head[0]), T(by_head[1]), T(by_head[2])},
               {sizes::batch, sizes::heads, sizes::length, sizes::head});
    auto const back =
        t.call("transpose", {T(mixed), number(1), number(2)}, {sizes::batch, sizes::length, sizes::heads, sizes::head});
    auto const merged = t.call("reshape", {T(back), ints({sizes::batch, sizes::length, sizes::width})},
                               {sizes::batch, sizes::length, sizes::width});
    return t.builder.finish(t.call("torch.sum", {T(t.linear(merged, "out", sizes::width))}, {}));
}

/// Attention by groups of heads: fewer heads of keys and of values than of queries.
program grouped(std::string const& how) {
    traced_program t;
    auto const x = t.builder.input("x", {sizes::batch, sizes::length, sizes::width});
    extent constexpr few = 2, all = sizes::heads + 2 * few;
    std::vector<extent> const counts{sizes::heads, few, few};
    auto const on_heads = [&](tensor_id y, extent count) {
        return t.call("view", {T(y), ints({sizes::batch, sizes::length, count, sizes::head})},
                      {sizes::batch, sizes::length, count, sizes::head});
    };
    auto const before_rows = [&](tensor_id y, extent count) {
        return t.call("transpose", {T(y), number(1), number(2)}, {sizes::batch, count, sizes::length, sizes::head});
    };
    tensors by_head;
    auto packed = how == "separate" ? x : t.linear(x, "packed", all * sizes::head);
    if (how == "heads" || how == "transposed") packed = on_heads(packed, all);
    if (how == "transposed") packed = before_rows(packed, all);
    extent start = 0;
    for (auto count : counts) {
        auto const taken = [&](std::size_t axis, extent unit) {
            tensor_shape dims = t.dims(packed);
            dims[axis] = count * unit;
            std::vector<literal> index(axis, slice({}, {}));
            index.push_back(slice(start * unit, (start + count) * unit));
            return t.call("operator.getitem", {T(packed), test::list(index)}, dims);
        };
        if (how == "separate") by_head.push_back(t.linear(x, "p" + std::to_string(start), count * sizes::head));
        else by_head.push_back(how == "features" ? taken(2, sizes::head) : taken(how == "heads" ? 2 : 1, 1));
        if (how == "separate" || how == "features") by_head.back() = on_heads(by_head.back(), count);
        if (how != "transposed") by_head.back() = before_rows(by_head.back(), count);
        start += count;
    }
    auto const mixed =
        t.call("torch.nn.functional.scaled_dot_product_attention", {T(by_head[0]), T(by_head[1]), T(by_head[2])},
               {sizes::batch, sizes::heads, sizes::length, sizes::head}, {{"enable_gqa", flag(true)}});
    auto const merged = t.call("reshape",
                               {T(t.call("transpose", {T(mixed), number(1), number(2)},
                                         {sizes::batch, sizes::length, sizes::heads, sizes::head})),
                                ints({sizes::batch, sizes::length, sizes::width})},
                               {sizes::batch, sizes::length, sizes::width});
    auto const loss = t.call("torch.sum", {T(t.linear(merged, "out", sizes::width))}, {});
    detail::join_slices(t.builder, loss);
    return t.builder.finish(loss);
}

/// Hidden units, each times a gate.
program gated(std::string const& how) {
    traced_program t;
    auto const x = t.builder.input("x", {sizes::batch, sizes::length, sizes::width});
    tensor_shape const dims{sizes::batch, sizes::length, sizes::hidden};
    auto const both = projected(t, x, how, 2, sizes::hidden);
    auto const y = t.call("operator.mul", {T(both[0]), T(t.call("torch.sigmoid", {T(both[1])}, dims))}, dims);
    return t.builder.finish(t.call("torch.sum", {T(t.linear(y, "down", sizes::width))}, {}));
}

/// Work as fast as its operations, a network without latency: what is packed has fewer kernels and transfers.
cluster unequal_devices() {
    cluster c;
    auto const type = [](char const* name, double rate) {
        return device_type{
            name, bytes(32e9), bytes_per_second(1e18), seconds(0), {{element_type::float32, {flops_per_second(rate)}}}};
    };
    c.types = {type("A", 1.5e13), type("B", 0.75e13)};
    c.machines = {{0, 1, 2}, {1, 1, 2}};
    c.intra = c.inter = network_link{bytes_per_second(1e11), seconds(0)};
    return c;
}

plan planned(program const& p) {
    auto made = plan_hap(p, unequal_devices(), clp::ratio_solver{},
                         {.training = {.optimizer_bytes_per_element = 0, .bucket = bytes(0)}});
    REQUIRE(made.exists());
    auto const checked = verify(p, made);
    CHECK_MESSAGE(checked, checked.problem);
    return made;
}

/// Fewer shares than rows, as pieces that differ have, leave less even shards to baselines that store parameters so.
void check_alike(program (*make)(std::string const&), std::vector<std::string> const& ways,
                 bool as_many_shards = true) {
    auto const separate = planned(make("separate"));
    for (auto const& how : ways) {
        CAPTURE(how);
        auto const packed = planned(make(how));
        CHECK(packed.cost() == doctest::Approx(separate.cost()).epsilon(1e-9));
        for (auto const& [name, seconds] : separate.baselines) {
            if (!as_many_shards) break;
            CAPTURE(name);
            CHECK(packed.baselines.at(name).value() == doctest::Approx(seconds.value()).epsilon(1e-9));
        }
    }
}

} // namespace

TEST_CASE("queries, keys and values of one matrix are planned as those of three") {
    check_alike(attention, {"split", "chunk", "slices", "unbind", "select", "addmm"});
}

TEST_CASE("groups of heads of one matrix, taken by features or by heads, are planned as those of three") {
    check_alike(grouped, {"features", "heads", "transposed"}, false);
}

TEST_CASE("a gate and a value of one matrix are planned as those of two") {
    check_alike(gated, {"split", "chunk", "slices", "unbind"});
}
