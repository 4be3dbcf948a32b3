// SPDX-License-Identifier: BSL-1.0
#include <heddle/libtorch/all.hpp>

#include <heddle/program/axioms.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace heddle;

namespace {

at::Tensor numbers(std::vector<std::int64_t> const& sizes) { return at::zeros(sizes); }

/// A module with one parameter `weight` and this body of `forward(self, x)`.
torch::jit::Module module_of(std::string const& body, std::vector<std::int64_t> const& weight = {4}) {
    torch::jit::Module m("net");
    m.register_parameter("weight", numbers(weight).requires_grad_(true), false);
    m.define("def forward(self, x):\n" + body);
    return m;
}

libtorch::traced_model traced(std::string const& body, std::vector<std::int64_t> const& x = {8, 4}) {
    return libtorch::trace(module_of(body), {numbers(x)});
}

/// Kinds of operators, in order.
std::string kinds(program const& p) {
    std::string text;
    for (operator_id o = 0; o < p.operator_count(); ++o) text += (o ? " " : "") + p.kind(o);
    return text;
}

std::string error_of(std::string const& body) {
    try {
        static_cast<void>(traced(body));
    } catch (input_error const& e) { return e.what(); }
    return "nothing thrown";
}

tensor_info find_source(program const& p, std::string const& name) {
    for (tensor_id t = 0; t < p.tensor_count(); ++t)
        if (p.tensor(t).name == name) return p.tensor(t);
    return {"absent", {}};
}

} // namespace

TEST_CASE("a module gives operators, names and shapes") {
    auto const m = libtorch::trace(module_of("    return torch.relu(torch.matmul(x, self.weight)).sum()\n", {4, 6}),
                                   {numbers({8, 4})});
    auto const& p = m.program;
    CHECK(m.name == "net");
    CHECK(m.warnings.empty());
    CHECK(broken_axioms(p).empty());
    CHECK(kinds(p) == "matmul relu sum");
    CHECK(p.tensor(p.results(0)[0]).shape == tensor_shape{8, 6});
    CHECK(find_source(p, "x").role == tensor_role::input);
    CHECK(find_source(p, "weight").trainable);
    CHECK(p.name(1) == "relu");
}

TEST_CASE("in-place operators become values") {
    auto const p =
        traced("    y = x * self.weight\n    z = y\n    y += 1.0\n    y.relu_()\n    return z.sum()\n").program;
    CHECK(kinds(p) == "mul add relu sum");
    CHECK(p.operands(3)[0] == p.results(2)[0]); // under its other name as well
    CHECK(p.operands(2)[0] == p.results(1)[0]);
}

TEST_CASE("what shares storage with a changed tensor has its new elements, or is refused") {
    auto const whole =
        traced("    y = x * self.weight\n    flat = y.view([-1])\n    y.relu_()\n    return flat.sum()\n").program;
    CHECK(kinds(whole) == "mul relu reshape sum");
    auto const under =
        traced("    y = x * self.weight\n    flat = y.view([-1])\n    flat.relu_()\n    return y.sum()\n").program;
    CHECK(kinds(under) == "mul view relu reshape sum");
    CHECK(under.tensor(under.results(3)[0]).shape == tensor_shape{8, 4});
    auto const part = error_of("    y = x * self.weight\n    y[:, 0].relu_()\n    return y.sum()\n");
    CHECK(part.find("forward: a tensor is used that shares some of its elements") == 0);
    auto const slice = traced("    y = x * self.weight\n    y[:, 1:3].relu_()\n    return y.sum()\n").program;
    CHECK(kinds(slice) == "mul getitem relu getitem getitem cat sum");
    CHECK(std::vector(slice.operands(5).begin(), slice.operands(5).end()) ==
          std::vector{slice.results(3)[0], slice.results(2)[0], slice.results(4)[0]});
    CHECK(slice.tensor(slice.results(4)[0]).shape == tensor_shape{8, 1});
    CHECK(kinds(traced("    y = x * self.weight\n    y[2:].zero_()\n    return y.sum()\n").program) ==
          "mul getitem cat sum"); // nothing reads what was there
    CHECK(error_of("    y = x * self.weight\n    last = y[2:]\n    first = y[:1]\n    last.zero_()\n    "
                   "first.zero_()\n    return y.sum()\n")
              .find("forward: a tensor is used that") == 0);
    auto const copied =
        traced("    y = x * self.weight\n    z = torch.zeros_like(y)\n    z.copy_(y)\n    return z.sum()\n").program;
    CHECK(kinds(copied) == "mul sum");
}

TEST_CASE("views and slices of a changed tensor follow it") {
    auto const p = traced("    y = (x * self.weight).contiguous()\n    return y[:, 1:3][:, 0].reshape([2, "
                          "4]).transpose(0, -1).sum()\n")
                       .program;
    CHECK(kinds(p) == "mul getitem getitem reshape transpose sum");
    CHECK(p.tensor(p.results(1)[0]).shape == tensor_shape{8, 2});
    CHECK(p.tensor(p.results(4)[0]).shape == tensor_shape{4, 2});
}

TEST_CASE("numbers are worked out, branches and loops followed") {
    auto const p = traced("    n = x.size(0) // 2\n"
                          "    y = x * self.weight\n"
                          "    if x.dim() == 2:\n"
                          "        y = y.view([n, -1])\n"
                          "    else:\n"
                          "        y = -y\n"
                          "    for i in range(3):\n"
                          "        y = torch.relu(y)\n"
                          "    return y.sum() / float(n)\n")
                       .program;
    CHECK(kinds(p) == "mul view relu relu relu sum div");
    CHECK(p.tensor(p.results(1)[0]).shape == tensor_shape{4, 8});
    CHECK(p.attributes(6).at("number") == std::vector<double>{4});
    CHECK(error_of("    y = (x * self.weight).sum()\n    if bool(y > 0):\n        y = -y\n    return y\n")
              .find("needs the contents of a tensor") != std::string::npos);
}

TEST_CASE("tied and frozen parameters, buffers and constants are sources") {
    torch::jit::Module m("net"), inner("inner");
    auto const shared = numbers({4}).requires_grad_(true);
    inner.register_parameter("weight", shared, false);
    inner.define("def forward(self, x):\n    return x * self.weight\n");
    m.register_module("inner", inner);
    m.register_parameter("again", shared.detach().requires_grad_(true),
                         false); // another object of the same storage, as after loading
    m.register_parameter("frozen", numbers({4}), false);
    m.register_buffer("mask", numbers({4}));
    m.define("def forward(self, x):\n    return (self.inner.forward(x) * self.again + self.frozen * self.mask + "
             "torch.ones([4])).sum()\n");
    auto const p = libtorch::trace(m, {numbers({8, 4})}).program;
    CHECK(broken_axioms(p).empty());
    CHECK(kinds(p) == "mul mul mul add add sum");
    CHECK(p.operands(0)[1] == p.operands(1)[1]);
    auto const tied = p.tensor(p.operands(0)[1]);
    CHECK((tied.name == "again" || tied.name == "inner.weight"));
    CHECK(tied.trainable);
    CHECK(find_source(p, "frozen").role == tensor_role::parameter);
    CHECK_FALSE(find_source(p, "frozen").trainable);
    CHECK(find_source(p, "mask").role == tensor_role::buffer);
    CHECK(find_source(p, "constant_0").role == tensor_role::buffer);
    CHECK(p.name(0) == "inner.mul");
}

TEST_CASE("tensors that are made with known contents are constants") {
    auto const p =
        traced("    mask = x.new_zeros([4])\n    mask[1:3] = 1\n    return (x * self.weight + mask).sum()\n").program;
    CHECK(kinds(p) == "mul add sum");
    CHECK(find_source(p, "constant_0").shape == tensor_shape{4});
}

TEST_CASE("stochastic depth is one operator") {
    for (bool const per_row : {true, false}) {
        torch::jit::Module m("net"), drop("StochasticDepth");
        drop.define("def forward(self, x):\n    noise = torch.empty([" + std::string(per_row ? "x.size(0)" : "1") +
                    ", 1]).bernoulli_(0.75)\n    noise.div_(0.75)\n    return x * noise\n");
        m.register_module("drop", drop);
        m.register_parameter("weight", numbers({4}).requires_grad_(true), false);
        m.define("def forward(self, x):\n    return self.drop.forward(x * self.weight).sum()\n");
        auto const p = libtorch::trace(m, {numbers({8, 4})}).program;
        REQUIRE(kinds(p) == "mul stochastic_depth sum");
        CHECK(p.attributes(1).at("p") == std::vector<double>{0.25});
        CHECK(p.attributes(1).at("drawn") == std::vector<double>{per_row ? 1.0 : 0.0});
    }
}

TEST_CASE("a run leaves the module as it was") {
    torch::jit::Module m("net");
    m.register_parameter("weight", at::ones({4}).requires_grad_(true), false);
    m.register_buffer("count", at::zeros({}, at::kLong));
    m.register_attribute("calls", c10::IntType::get(), c10::IValue(0));
    m.define("def forward(self, x):\n    self.calls += 1\n    self.count.add_(1)\n    return (x * self.weight).sum() * "
             "float(self.calls)\n");
    auto const p = libtorch::trace(m, {numbers({8, 4})}).program;
    CHECK(kinds(p) == "mul sum mul");
    CHECK(m.attr("calls").toInt() == 0);
    CHECK(m.attr("count").toTensor().item<std::int64_t>() == 0);
}

TEST_CASE("a loss is appended") {
    auto const m = module_of("    return torch.matmul(x, self.weight)\n", {4, 10});
    auto const target = at::zeros({8}, at::kLong);
    auto const p =
        libtorch::trace(
            m, {numbers({8, 4})},
            {.name = "mine",
             .loss = libtorch::appended_loss{.function = "cross_entropy", .reduction = "sum", .target = target}})
            .program;
    CHECK(kinds(p) == "matmul cross_entropy");
    CHECK(find_source(p, "target").type == element_type::int64);
    CHECK(p.tensor(p.loss()).shape.empty());
    auto const squared =
        libtorch::trace(m, {numbers({8, 4})},
                        {.loss = libtorch::appended_loss{.function = "mse_loss", .target = numbers({8, 10})}})
            .program;
    CHECK(kinds(squared) == "matmul mse_loss");
    auto const several = module_of("    y = torch.matmul(x, self.weight)\n    return y, -y, None, y + y\n", {4, 10});
    auto const summed = libtorch::trace(several, {numbers({8, 4})},
                                        {.loss = libtorch::appended_loss{.target = target, .auxiliary_weight = 0.5}})
                            .program;
    CHECK(kinds(summed) == "matmul neg add cross_entropy cross_entropy mul add cross_entropy mul add");
    CHECK(summed.attributes(5).at("number") == std::vector<double>{0.5});
}

TEST_CASE("an operator without a rule has a warning, and none with a rule") {
    auto const unknown = traced("    return torch.lgamma(x * self.weight).sum()\n");
    REQUIRE(unknown.missing_rules.size() == 1);
    CHECK(unknown.missing_rules[0].target == "torch.lgamma");
    CHECK(unknown.warnings.size() == 1);
    auto const known = libtorch::trace(module_of("    return torch.lgamma(x * self.weight).sum()\n"), {numbers({8, 4})},
                                       {.rules = {{"torch.lgamma", "(b d) -> (b d)"}}});
    CHECK(known.warnings.empty());
}

TEST_CASE("convolutions have their shape without being computed") {
    auto const m =
        module_of("    return torch.conv2d(x, self.weight, None, [2, 1], [1, 0], [1, 2], 2).sum()\n", {6, 2, 3, 3});
    auto const p = libtorch::trace(m, {at::empty({1024, 4, 33, 40}, at::TensorOptions().device(at::kMeta))}).program;
    CHECK(kinds(p) == "conv2d sum");
    CHECK(p.tensor(p.results(0)[0]).shape == tensor_shape{1024, 6, 17, 36});
    auto const real = libtorch::trace(m, {numbers({1, 4, 33, 40})}).program;
    auto const computed = at::conv2d(numbers({1, 4, 33, 40}), numbers({6, 2, 3, 3}), {}, {2, 1}, {1, 0}, {1, 2}, 2);
    CHECK(real.tensor(real.results(0)[0]).shape == tensor_shape(computed.sizes().begin(), computed.sizes().end()));
}

TEST_CASE("resizing takes a factor that does not divide evenly") {
    for (std::string const mode : {"nearest", "bilinear"}) {
        auto const corners = mode == "nearest" ? std::string{} : ", False";
        auto const m = module_of("    return torch.upsample_" + mode + "2d(x, None" + corners +
                                 ", [1.3, 1.5]).sum() + torch.upsample_" + mode + "2d(x, [5, 7]" + corners +
                                 ", None).sum() * self.weight.sum()\n");
        auto const traced = libtorch::trace(m, {numbers({2, 3, 6, 5})});
        CHECK(traced.warnings.empty());
        auto const& p = traced.program;
        REQUIRE(kinds(p).find("interpolate sum interpolate sum") == 0);
        CHECK(p.tensor(p.results(0)[0]).shape == tensor_shape{2, 3, 7, 7});
        CHECK(p.attributes(0).at("factors") == std::vector<double>{1.3, 1.5});
        CHECK(p.tensor(p.results(2)[0]).shape == tensor_shape{2, 3, 5, 7});
        CHECK_FALSE(p.attributes(2).contains("factors"));
    }
}

TEST_CASE("convolutions without a batch are read") {
    auto const p = libtorch::trace(
                       module_of("    return torch.conv2d(x, self.weight, None, [2, 1], [1, 0]).sum()\n", {6, 4, 3, 3}),
                       {numbers({4, 33, 40})})
                       .program;
    CHECK(p.tensor(p.results(0)[0]).shape == tensor_shape{6, 17, 38});
}

TEST_CASE("contents known while tracing may have the shape of others") {
    auto const p = traced("    mask = torch.zeros_like(x)\n    mask[:, 2:] = 1\n    return (x * mask * self.weight + "
                          "torch.full_like(x, 2.0) + torch.ones_like(x)).sum()\n")
                       .program;
    CHECK(kinds(p) == "mul mul add add sum");
    CHECK(find_source(p, "constant_0").shape == tensor_shape{8, 4});
}

TEST_CASE("traced values may be written into a tensor known while tracing") {
    auto const p = traced("    y = torch.zeros([8, 4])\n    y.add_(x * self.weight)\n    return y.sum()\n").program;
    CHECK(kinds(p) == "mul add sum");
    CHECK(p.operands(2)[0] == p.results(1)[0]);
    CHECK(error_of("    y = torch.zeros([8, 4])\n    row = y[0]\n    y.add_(x * self.weight)\n    return row.sum()\n")
              .find("forward: a tensor is used that shares") == 0);
    CHECK(error_of("    y = torch.zeros([8, 4])\n    row = y[0]\n    row.add_(self.weight)\n    return y.sum()\n")
              .find("forward: a tensor is used that shares") == 0);
}

TEST_CASE("an embedding without padding is read") {
    auto const m = module_of("    return torch.embedding(self.weight, x).sum()\n", {11, 4});
    auto const p = libtorch::trace(m, {at::zeros({8}, at::kLong)}).program;
    CHECK_FALSE(p.attributes(0).contains("padding_idx"));
}

TEST_CASE("a recurrent layer is one operator") {
    auto const m = module_of("    y, h = torch.gru(x, torch.zeros([1, 8, 4]), [self.weight, self.weight], False, 1, "
                             "0.5, True, False, False)\n    return y.sum() + h.sum()\n",
                             {12, 4});
    auto const model = libtorch::trace(m, {numbers({5, 8, 4})});
    CHECK(model.warnings.empty());
    CHECK(kinds(model.program) == "gru sum sum add");
}

TEST_CASE("parameters in a list are those of the module") {
    torch::jit::Module m("net");
    auto const weight = numbers({4}).requires_grad_(true);
    m.register_parameter("weight", weight, false);
    m.register_attribute("kept", c10::ListType::ofTensors(),
                         c10::IValue(c10::List<at::Tensor>({weight, numbers({4})})));
    m.define("def forward(self, x):\n    return (x * self.kept[0] + self.kept[1]).sum()\n");
    auto const p = libtorch::trace(m, {numbers({8, 4})}).program;
    CHECK(kinds(p) == "mul add sum");
    CHECK(p.tensor(p.operands(0)[1]).name == "weight");
    CHECK(find_source(p, "weight").trainable);
    CHECK(find_source(p, "kept.1").role == tensor_role::buffer);
}

TEST_CASE("bad input is refused in a sentence") {
    CHECK(error_of("    return x * self.weight\n") == "loss 'mul': has 32 elements, expected one");
    CHECK(error_of("    return x, x\n").find("forward: returns a Tuple, expected one tensor") == 0);
    CHECK(error_of("    return torch.matmul(x, self.weight[:2]).sum()\n")
              .find("forward: aten::matmul cannot be evaluated: ") == 0);
    CHECK_THROWS_WITH_AS(
        static_cast<void>(libtorch::trace(module_of("    return x.sum()\n"), {numbers({1}), numbers({1})})),
        "inputs: there are 2, forward takes 1", input_error);
    CHECK_THROWS_WITH_AS(static_cast<void>(libtorch::trace(module_of("    return x.sum()\n"), {})),
                         doctest::Contains("'x'"), input_error);
    CHECK_THROWS_AS(static_cast<void>(libtorch::trace(std::string("/absent.pt"), {})), file_error);
}
