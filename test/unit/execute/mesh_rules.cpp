// SPDX-License-Identifier: BSL-1.0
// The rules of meshes one by one: what keeps to one is accepted and right; what breaks it is refused, and would be
// wrong.
#include "kernels.hpp"
#include "trap.hpp"

#include <heddle/cost/mesh_cuts.hpp>
#include <heddle/execute/interpreter.hpp>
#include <heddle/execute/prove.hpp>
#include <support/cases.hpp>
#include <support/forms.hpp>
#include <support/random_mesh_programs.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <exception>
#include <limits>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace heddle;

namespace {

using test::M;
using test::P;
using test::R;
using test::S0;
using test::S1;

template <class... Forms>
product_form forms(Forms... of_axes) {
    product_form f;
    (f.push_back(of_axes), ...);
    return f;
}

/// A line on which statistics of rows are not combined, if it is deaf.
struct deaf_line : in_process_communicator {
    bool is_deaf = false;
    deaf_line(in_process_communicator&& line) : in_process_communicator(std::move(line)) {}
    using in_process_communicator::all_reduce;
    void all_reduce(std::span<double> data, reduction how) {
        if (!is_deaf) in_process_communicator::all_reduce(data, how);
    }
};

/// A mesh program written down by hand.
class mesh_trap {
public:
    /// *Precondition:* `of` is finished, and outlives this.
    mesh_trap(test::trap const& of, mesh m) : trap_(of) { program_.mesh = std::move(m); }

    mesh_trap& read(tensor_id t, product_form const& to) { return read(t, to, to); }
    mesh_trap& read(tensor_id t, product_form const& from, product_form const& to) {
        program_.steps.push_back(mesh_instruction::read(t, from, to));
        return *this;
    }
    mesh_trap& convert(tensor_id t, product_form const& from, axis_number axis, tensor_form to) {
        program_.steps.push_back(mesh_instruction::convert(t, from, axis, to));
        return *this;
    }
    /// The next operator, on each axis split along the loop that gives these forms, or along none.
    mesh_trap& compute(std::vector<product_form> const& operands, std::vector<product_form> const& results) {
        auto const op = next_++;
        auto const& loops = trap_.indexed().operators[op].loops;
        mesh_instruction step;
        for (axis_number a = 0; a < program_.mesh.axis_count(); ++a) {
            instruction::compute i{op, {}, {}};
            for (auto const& f : operands) i.operands.push_back(f[a]);
            for (auto const& f : results) i.results.push_back(f[a]);
            for (std::size_t l = 0; l < loops.size(); ++l) {
                bool fits = true;
                auto const cuts = [&](tensor_form f, factor_number by_loop) {
                    fits &= f.is_shard() ? f.factor() == by_loop : by_loop == no_factor;
                };
                for (std::size_t k = 0; k < operands.size(); ++k) cuts(i.operands[k], loops[l].operands[k]);
                for (std::size_t k = 0; k < results.size(); ++k) cuts(i.results[k], loops[l].results[k]);
                if (fits && i.loop < 0) i.loop = static_cast<std::int16_t>(l);
            }
            step.axes.push_back(i);
        }
        program_.steps.push_back(std::move(step));
        return *this;
    }
    /// Divides atoms evenly on every axis, or as `ratios[axis]` says.
    mesh_trap& divide(std::vector<std::vector<double>> const& ratios = {}) {
        std::vector<ratio_table> tables = even_ratios(trap_.indexed(), program_.mesh);
        for (axis_number a = 0; a < ratios.size(); ++a) tables[a] = {ratios[a]};
        program_.cuts = mesh_cuts(trap_.indexed(), program_.mesh, program_.steps, tables);
        return *this;
    }
    [[nodiscard]] mesh_program& program() { return program_; }
    [[nodiscard]] std::string problem() const { return verify(trap_.indexed(), program_).problem; }

    /// The error of running it, of `of_device(d)` on each device; infinite if the devices cannot.
    template <class OfDevice>
    [[nodiscard]] double error(OfDevice&& of_device, std::set<axis_number> const& deaf = {}) const {
        auto const& p = trap_.single_device();
        auto const sources = random_sources<double>(p, 1);
        auto const expected = run_on_random_sources(p, sources, test::kernels(), 1);
        source_values<double> gradients;
        for (auto const& [t, gradient] : expected.gradients) gradients.emplace(t, gradient.second);
        double worst = 0;
        std::mutex lock;
        auto const note = [&](double error) { worst = error <= worst ? worst : error; };
        try {
            run_ranks(program_.mesh.device_count(), [&](in_process_communicator& world) {
                mesh_communicator<deaf_line> lines(world, program_.mesh);
                for (auto a : deaf) lines.line(a).is_deaf = true;
                plan const what = plan_on_mesh(trap_.indexed(), of_device(world.rank()));
                interpreter<double, mesh_communicator<deaf_line>, eigen_kernels<double>> run(p, trap_.indexed(), what,
                                                                                             lines, test::kernels(), 1);
                auto const mine = run.run(run.place(sources));
                double const loss = run.whole_loss(mine);
                std::scoped_lock const guard(lock);
                note(std::abs(loss - expected.loss));
                for (auto const& [t, whole] : run.place(gradients)) {
                    auto const& gradient = mine.gradients.at(t).second;
                    if (gradient.dims != whole.dims) return note(std::numeric_limits<double>::infinity());
                    for (std::size_t n = 0; n < whole.data.size(); ++n)
                        note(std::abs(gradient.data[n] - whole.data[n]));
                }
            });
        } catch (std::exception const&) { return std::numeric_limits<double>::infinity(); }
        return worst;
    }
    [[nodiscard]] double error(std::set<axis_number> const& deaf = {}) const {
        return error([&](std::size_t) { return program_; }, deaf);
    }
    /// Accepted and right.
    void emulates() const {
        INFO(test::describe(program_));
        CHECK(problem().empty());
        CHECK_MESSAGE(problem().empty(), problem());
        CHECK(error() < 1e-12);
    }
    /// Refused for this reason, and wrong.
    void fails(char const* reason) const {
        INFO(test::describe(program_));
        INFO(problem());
        CHECK(problem().find(reason) != std::string::npos);
        CHECK(error() > 1e-3);
    }

private:
    test::trap const& trap_;
    mesh_program program_;
    operator_id next_ = 0;
};

/// The sum of the products of an input and a weight of four numbers.
struct scaled_sum {
    test::trap t;
    tensor_id x = t.input({4}), w = t.weight({4}), y = t.add("mul", {x, w}, {4}), loss = t.add("sum", {y}, {});
    scaled_sum() { t.finish(loss); }

    /// Goes on from a weight that all hold whole.
    void end(mesh_trap& m) const {
        m.read(x, forms(R, R)).compute({forms(R, R), forms(R, R)}, {forms(R, R)}).compute({forms(R, R)}, {forms(R, R)});
        m.convert(loss, forms(R, R), 0, P).convert(loss, forms(P, R), 1, P).divide();
    }
};

} // namespace

TEST_CASE("an axis ends to cut a factor when no axis inside it cuts the factor") {
    scaled_sum const s;
    mesh_trap right(s.t, mesh({2, 2})), wrong = right;
    right.read(s.w, forms(S0, S0)).convert(s.w, forms(S0, S0), 1, R);
    right.convert(s.w, forms(S0, R), 0, R);
    s.end(right);
    right.emulates();
    wrong.read(s.w, forms(S0, S0)).convert(s.w, forms(S0, S0), 0, R);
    wrong.convert(s.w, forms(R, S0), 1, R);
    s.end(wrong);
    wrong.fails("axis 0 begins or ends to cut 'weight2' along factor 0, which an axis inside it cuts in (shard(0), "
                "shard(0))");
}

TEST_CASE("an axis begins to cut a factor when no axis inside it cuts the factor") {
    scaled_sum const s;
    mesh_trap right(s.t, mesh({2, 2})), wrong = right;
    right.read(s.w, forms(R, R)).convert(s.w, forms(R, R), 0, S0).convert(s.w, forms(S0, R), 1, S0);
    right.convert(s.w, forms(S0, S0), 1, M).convert(s.w, forms(S0, M), 0, M);
    wrong.read(s.w, forms(R, R)).convert(s.w, forms(R, R), 1, S0).convert(s.w, forms(R, S0), 0, S0);
    wrong.convert(s.w, forms(S0, S0), 1, M).convert(s.w, forms(S0, M), 0, M);
    for (auto* m : {&right, &wrong})
        m->read(s.x, forms(R, R))
            .compute({forms(R, R), forms(M, M)}, {forms(M, M)})
            .compute({forms(M, M)}, {forms(M, M)})
            .divide();
    right.emulates();
    wrong.fails("axis 0 begins or ends to cut 'weight2' along factor 0, which an axis inside it cuts in (replicated, "
                "shard(0))");
}

TEST_CASE("whole copies of a parameter in shards are made from inside out") {
    scaled_sum const s;
    mesh_trap right(s.t, mesh({2, 2})), wrong = right;
    right.read(s.w, forms(S0, S0), forms(R, R));
    s.end(right);
    right.emulates();
    wrong.read(s.w, forms(S0, S0), forms(R, S0)).convert(s.w, forms(R, S0), 1, R);
    s.end(wrong);
    wrong.fails("axis 0 begins or ends to cut");
}

TEST_CASE("what an axis cuts is a factor of its slice") {
    test::trap t;
    auto const w = t.weight({6});
    auto const pieces = t.add_multi("split_with_sizes", {w}, {{4}, {2}}, {test::ints({4, 2})});
    auto const a = t.add("sum", {t.add("reshape", {pieces[0]}, {2, 2}, {test::ints({2, 2})})}, {}),
               b = t.add("sum", {t.add("exp", {pieces[1]}, {2})}, {});
    t.finish(t.add("add", {a, b}, {}));
    auto const& factors = t.indexed().tensors[w].factors;
    REQUIRE(factors.size() == 2); // all places, and shares of both pieces
    REQUIRE(factors[1].widths == std::vector<extent>{2, 1});
    auto const program_of = [&](product_form const& f) {
        mesh_trap m(t, mesh({2, 2}));
        m.read(w, f);
        auto so_far = f;
        for (axis_number axis = 2; axis-- > 0; so_far = so_far.with(axis, M)) m.convert(w, so_far, axis, M);
        m.compute({forms(M, M)}, {forms(M, M), forms(M, M)});
        for (int n = 0; n < 4; ++n) m.compute({forms(M, M)}, {forms(M, M)});
        m.compute({forms(M, M), forms(M, M)}, {forms(M, M)}).divide();
        return m;
    };
    program_of(forms(S1, S1)).emulates();
    program_of(forms(S0, S0)).emulates();
    // The slice has three places: of the first piece alone, or of shares of both that lie side by side.
    for (auto const& f : {forms(S0, S1), forms(S1, S0)})
        CHECK(program_of(f).problem().find("an axis inside cuts what is no factor of the slice") != std::string::npos);
}

TEST_CASE("slices divide a class alike, by the atoms that they have") {
    scaled_sum const s;
    mesh_trap m(s.t, mesh({2, 2}));
    m.read(s.w, forms(R, S0)).read(s.x, forms(R, S0));
    m.compute({forms(R, S0), forms(R, S0)}, {forms(R, S0)});
    m.convert(s.y, forms(R, S0), 0, P).convert(s.y, forms(P, S0), 0, M);
    m.compute({forms(M, S0)}, {forms(M, P)}).divide({{0.5, 0.5}, {0.25, 0.75}});
    m.emulates();
    auto other = m.program(); // of the same atoms, but as the place on an axis that does not cut them says
    for (auto& cut : other.cuts) cut.inside[0].at(4) = {3, 1};
    CHECK(m.error([&](std::size_t device) { return device < 2 ? m.program() : other; }) > 1e-3);

    mesh_trap both(s.t, mesh({2, 2})); // the slices have other atoms, so each divides them as it likes
    both.read(s.w, forms(S0, S0)).read(s.x, forms(S0, S0));
    both.compute({forms(S0, S0), forms(S0, S0)}, {forms(S0, S0)});
    both.compute({forms(S0, S0)}, {forms(P, P)}).divide({{0.25, 0.75}, {0.5, 0.5}});
    both.program().cuts[0].inside[0].at(3) = {0, 3};
    both.emulates();
    both.program().cuts[0].inside[0].at(3) = {1, 3};
    CHECK(both.problem() == "cut 0 on axis 1 distributes 4 of 3 atoms");
    both.program().cuts[0].inside[0].erase(3);
    CHECK(both.problem() == "cut 0 on axis 1 does not say how 3 atoms are divided");
}

TEST_CASE("what is cut at the same points on any axis is one class") {
    test::trap t;
    auto const x = t.input({4, 6}), w = t.weight({6, 6});
    auto const y = t.add("linear", {x, w}, {4, 6}), z = t.add("reshape", {y}, {4, 3, 2}, {test::ints({4, 3, 2})});
    t.finish(t.add("sum", {z}, {}));
    mesh_trap m(t, mesh({2, 2}));
    m.read(x, forms(R, R)).read(w, forms(R, R)).compute({forms(R, R), forms(R, R)}, {forms(R, R)});
    m.convert(y, forms(R, R), 0, S0).convert(y, forms(S0, R), 1, S1);
    m.compute({forms(S0, S1)}, {forms(S0, S1)}).compute({forms(S0, S1)}, {forms(P, P)}).divide();
    m.emulates();
    auto const members = [&](tensor_form f) {
        for (auto const& c : m.program().cuts)
            if (std::ranges::find(c.members, cut_factor{y, f.factor()}) != c.members.end()) return c.members.size();
        return std::size_t{0};
    };
    CHECK(members(S0) == 2);
    CHECK(members(S1) == 2);
    auto again = m.program().cuts.back();
    m.program().cuts.push_back(again);
    CHECK(m.problem().find("is one class") != std::string::npos);
}

TEST_CASE("statistics are combined over all axes that cut their rows") {
    test::trap t;
    auto const x = t.input({2, 6}), w = t.weight({2, 6}), y = t.add("softmax", {w}, {2, 6}, {test::number(1)}),
               z = t.add("mul", {x, y}, {2, 6});
    t.finish(t.add("sum", {z}, {}));
    auto const both = forms(S1, S1);
    mesh_trap m(t, mesh({2, 2}));
    m.read(w, both).compute({both}, {both}).read(x, both).compute({both, both}, {both}).compute({both}, {forms(P, P)});
    m.divide({{0.5, 0.5}, {1.0 / 3, 2.0 / 3}});
    m.emulates();
    CHECK(m.error({0}) > 1e-3);
    CHECK(m.error({1}) > 1e-3);
    auto const one = forms(S0, S1); // the other axis has other rows
    mesh_trap rows(t, mesh({2, 2}));
    rows.read(w, one).compute({one}, {one}).read(x, one).compute({one, one}, {one}).compute({one}, {forms(P, P)});
    rows.divide().emulates();
    CHECK(rows.error({0}) < 1e-12);
    CHECK(rows.error({1}) > 1e-3);
}

TEST_CASE("a copy is masked on the axis that sums") {
    test::trap t;
    auto const x = t.input({4, 6}), w = t.weight({3, 6}), b = t.weight({3}), y = t.add("linear", {x, w, b}, {4, 3}),
               z = t.add("tanh", {y}, {4, 3}), loss = t.add("sum", {z}, {});
    t.finish(loss);
    auto const columns = forms(R, S1);
    mesh_trap right(t, mesh({2, 2})), wrong = right;
    for (auto* m : {&right, &wrong}) m->read(x, columns).read(w, columns).read(b, forms(R, R));
    right.convert(b, forms(R, R), 1, P).compute({columns, columns, forms(R, P)}, {forms(R, P)});
    right.convert(y, forms(R, P), 1, R);
    wrong.convert(b, forms(R, R), 0, P).compute({columns, columns, forms(P, R)}, {forms(P, P)});
    wrong.convert(y, forms(P, P), 1, R).convert(y, forms(P, R), 0, R);
    for (auto* m : {&right, &wrong}) {
        m->compute({forms(R, R)}, {forms(R, R)}).compute({forms(R, R)}, {forms(R, R)});
        m->convert(loss, forms(R, R), 0, P).convert(loss, forms(P, R), 1, P).divide();
    }
    right.emulates();
    wrong.fails("partial");
}

TEST_CASE("rows are exchanged along one axis, and no other cuts what they are sent to") {
    test::trap t;
    auto const x = t.weight({8, 3}), ids = t.input({8, 2}, element_type::int64), w = t.weight({8, 2}),
               up = t.weight({4, 3, 5}), down = t.weight({4, 5, 4});
    auto const y = t.add("heddle.routed_experts", {x, ids, w, up, down}, {8, 4}), z = t.input({8, 4});
    t.finish(t.add("sum", {t.add("mul", {y, z}, {8, 4})}, {}));
    auto const program_of = [&](product_form const& rows, product_form const& of_experts, product_form const& made) {
        mesh_trap m(t, mesh({2, 2}));
        for (auto source : {x, ids, w}) m.read(source, rows);
        m.read(up, of_experts).read(down, of_experts);
        m.compute({rows, rows, rows, of_experts, of_experts}, {made});
        if (made[1] == P) m.convert(y, made, 1, R);
        auto const f = made[1] == P ? made.with(1, R) : made;
        m.read(z, f).compute({f, f}, {f}).compute({f}, {forms(P, f[1].is_shard() ? P : R)});
        if (!f[1].is_shard()) m.convert(t.indexed().loss, forms(P, R), 1, P);
        m.divide();
        return m;
    };
    program_of(forms(S0, S0), forms(S0, R), forms(S0, S0)).emulates();
    // Each line along the first axis has half of the experts only.
    auto const wrong = program_of(forms(S0, R), forms(S0, S0), forms(S0, P));
    INFO(wrong.problem());
    CHECK(wrong.problem().find("sends rows along axis 0, and axis 1 cuts the places that they are sent to") !=
          std::string::npos);
}

TEST_CASE("an axis may gather factors of a gradient though an axis inside it cuts them") {
    test::trap t;
    auto const x = t.input({6, 2}), w = t.weight({4, 2}), y = t.add("linear", {x, w}, {6, 4});
    t.finish(t.add("sum", {t.add("tanh", {y}, {6, 4})}, {}));
    auto const rows = forms(S0, S0);
    for (auto const& of_weight : {forms(M, R), forms(R, M), forms(M, M)}) {
        mesh_trap m(t, mesh({2, 3}));
        m.read(x, rows).read(w, of_weight).compute({rows, of_weight}, {rows}).compute({rows}, {rows});
        m.compute({rows}, {forms(P, P)}).divide({{1.0 / 3, 2.0 / 3}});
        m.emulates();
    }
}

TEST_CASE("every conversion on every axis is right in every form of the other axes") {
    test::trap factors, pieces;
    auto const w = factors.weight({4, 6});
    factors.finish(factors.add(
        "sum", {factors.add("exp", {factors.add("reshape", {w}, {4, 2, 3}, {test::ints({4, 2, 3})})}, {4, 2, 3})}, {}));
    auto const v = pieces.weight({6});
    auto const parts = pieces.add_multi("split_with_sizes", {v}, {{4}, {2}}, {test::ints({4, 2})});
    pieces.finish(pieces.add("add",
                             {pieces.add("sum", {pieces.add("reshape", {parts[0]}, {2, 2}, {test::ints({2, 2})})}, {}),
                              pieces.add("sum", {pieces.add("tanh", {parts[1]}, {2})}, {})},
                             {}));
    int all = 0, refused = 0;
    for (auto const* t : {&factors, &pieces})
        for (auto const& sizes : {std::vector<std::size_t>{2, 2}, {3, 2}, {2, 2, 2}}) {
            mesh const m(sizes);
            auto const axes = m.axis_count();
            auto const& tensor = t->indexed().tensors[0];
            for (auto const& from : test::possible_forms(tensor, axes))
                for (axis_number axis = 0; axis < axes; ++axis)
                    for (std::uint16_t code = 0; code < 3 + tensor.factors.size(); ++code) {
                        auto const to = tensor_form::from_code(code);
                        if (to == from[axis]) continue;
                        if (!find_conversion(from, axis, to, tensor)) {
                            ++refused;
                            continue;
                        }
                        ++all;
                        if (!test::is_drawn(all)) continue;
                        test::random_source random(static_cast<std::uint64_t>(all));
                        auto const made = from.with(axis, to);
                        product_form end(axes, M);
                        if (end == from) end = product_form(axes, R);
                        std::vector<mesh_instruction> steps{mesh_instruction::read(0, from),
                                                            mesh_instruction::convert(0, from, axis, to)};
                        auto const way = test::shortest_way(tensor, {made}, end, random, {from});
                        REQUIRE((made == end || !way.empty()));
                        for (auto const& c : way) steps.push_back(mesh_instruction::convert(0, c.from, c.axis, c.to));
                        for (operator_id o = 0; o < t->indexed().operators.size(); ++o) {
                            auto const& op = t->indexed().operators[o];
                            steps.push_back(mesh_instruction(std::vector<instruction>(
                                axes, instruction::compute{o, form_list(op.operands.size(), end[0]),
                                                           form_list(op.results.size(), end[0])})));
                        }
                        auto loss = end;
                        for (axis_number a = 0; a < axes && end[0] == R; ++a, loss = loss.with(a - 1, M))
                            steps.push_back(mesh_instruction::convert(t->indexed().loss, loss, a, M));
                        auto const what = test::mesh_program_of(t->indexed(), m, std::move(steps), random);
                        auto const verified = verify(t->indexed(), what);
                        auto const shown = test::emulate(t->single_device(), what, 1);
                        bool const holds = verified && shown; // one assertion for those that hold would be thousands
                        if (!holds) {
                            INFO(test::describe(what));
                            CHECK_MESSAGE(verified, verified.problem);
                            CHECK_MESSAGE(shown, shown.problem);
                        }
                    }
        }
    MESSAGE(all << " conversions, and " << refused << " that there are not");
    CHECK(all > 1000);
    CHECK(refused > 1000);
}
