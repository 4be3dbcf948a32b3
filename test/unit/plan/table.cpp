// SPDX-License-Identifier: BSL-1.0
#include <heddle/plan/figures.hpp>
#include <heddle/plan/staged_table.hpp>
#include <heddle/plan/table.hpp>
#include <heddle/plan/words.hpp>

#include <support/errors.hpp>
#include <support/small_plan.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <iomanip>
#include <limits>
#include <locale>
#include <sstream>
#include <string>
#include <vector>

using namespace heddle;

namespace {

std::string table_of(plan const& p, table_options const& options = {.times = false}) {
    std::ostringstream out;
    print(out, p, options);
    return out.str();
}

using test::contains;

/// At most so many characters a line, no space at an end.
void check_layout(std::string const& text, std::ptrdiff_t width = 100) {
    CAPTURE(text);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        CAPTURE(line);
        CHECK(std::ranges::count_if(line, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }) <=
              width);
        CHECK(!line.ends_with(' '));
    }
    CHECK(text.ends_with('\n'));
}

struct decimal_comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
};

} // namespace

TEST_CASE("a plan on a mesh prints what each axis does") {
    auto const p = test::mesh_plan();
    CHECK(verify_figures(p, test::two_machines()).problem == "");
    auto const text = table_of(p);
    CAPTURE(text);
    check_layout(text);
    for (char const* line : {"\ncluster                two machines, 4 devices\n", "\nmesh                   2 x 2\n",
                             "\nPlaces on the outermost axis (memory of each device in GB)\n", "  0       2 x fast",
                             "  replicated, optimizer sharded | sharded        1  0.000\n",
                             "\nProgram (by axis, outermost first: s split, w whole, p partial, m mirrored)\n",
                             "  linear    0 of 6 | split    sw, ws -> ss\n", "  loss      sum 0 of 6 | sum  ss -> pp\n",
                             "all_reduce on 1, 0.000 MB\n"})
        CHECK_MESSAGE(contains(text, line), line);
}

TEST_CASE("what devices of a mesh communicate along inner axes is told apart from what they compute") {
    auto p = test::mesh_plan();
    auto const c = test::two_machines();
    p.time = evaluate(p, c).time;
    REQUIRE(p.time.compute_inside > 0);
    auto near = c;
    near.intra = network_link{bytes_per_second(1e30), seconds(0)};
    auto const alone = evaluate(p, near).time;
    CHECK(alone.compute == doctest::Approx(p.time.own_compute()));
    CHECK(alone.update == doctest::Approx(p.time.own_update()));
    CHECK(contains(table_of(p), "\n  communication along inner axes "));
    p.time.compute_inside /= 2;
    CHECK(contains(verify_figures(p, c).problem, "communication inside"));
}

TEST_CASE("a plan prints as this table") {
    std::string const expected = R"(model                  layers
cluster                one fast, one slow, 2 devices
planner                hand (heddle 0.1.0)
status                 feasible
seconds per iteration  1.32835
lower bound            1.28684
gap                    3.12 %

What to do
  shares           uneven: 1 x fast takes 62.50 %; 1 x slow takes 37.50 %
  FSDP             1 parameter, 0.268 GB: in shards, gathered where they are
                   used
  data parallel    2 parameters, 0.537 GB: whole on each device, gradients
                   summed
  tensor parallel  1 parameter, 1.049 GB: in shards, and so is what is computed
                   from them

Time by term
                          seconds      %
  compute                 1.19750   90.1
  forward communication   0.02947    2.2
  backward communication  0.01239    0.9
  gradient communication  0.07096    5.3
  update                  0.01804    1.4
  total                   1.32835  100.0

Devices (memory in GB)
  device  type   ratio  param   grad  optim  input  activ   comm  total   limit  used %
  0       fast  0.6250  1.360  1.628  2.720  0.603  1.045  0.336  7.692  32.000    24.0
  1       slow  0.3750  1.031  1.299  2.062  0.362  0.706  0.336  5.795  16.000    36.2

Baselines
                 seconds
  DP-CP          1.66044  1.25 times the plan
  DP-EV          1.99253  1.50 times the plan
  fully sharded        -  no program fits

Under other options than the plan's, which may be dearer
                                seconds
  DP-CP, with gradient overlap  0.99626  0.75 times the plan

Parameters
  stored                     tensors     GB
  replicated                       2  0.537
  sharded                          1  1.049
  sharded, gathered for use        1  0.268

Program (split: dimension and extent, or those of an operand that is summed over)
  operator    split           operands -> results    converted before
  linear_0    0 of 6000       split, whole -> split  all_gather ...weight, 268 MB
  x2:
    relu_0    0 of 6000       split -> split
    linear_1  0 of 6000       split, whole -> split
  relu_2      0 of 6000       split -> split
  head        1 of 32000      whole, split -> split  all_gather relu_2, 197 MB
  loss        sum 1 of 32000  split x2 -> partial
  (end)                                              all_reduce loss, 0.000 MB

Search
  expanded 12, generated 345, dominated 67, bounded 89, kept 10

Trajectory
  origin              seconds
  DP-EV               1.99253
  even, round 1  does not fit
  even, round 2       1.32835

Warnings
  - made by hand

Seconds are predicted; 1 GB is 1e9 bytes; ratio: a device's part of what is cut.
)";
    std::string const text = table_of(test::layers_plan());
    CHECK(text == expected);
    check_layout(text);
}

TEST_CASE("without details a plan is a screen of 80 columns, which says all that is to be done") {
    auto const p = test::layers_plan();
    auto const text = table_of(p, {.times = false, .details = false});
    check_layout(text, 80);
    for (auto const* part :
         {"seconds per iteration  1.32835\n", "\nWhat to do\n", "\nTime by term\n", "\nBaselines\n",
          "  1       slow  0.3750  5.795  16.000    36.2\n", "\nWarnings\n", "\nSeconds are predicted"})
        CHECK_MESSAGE(contains(text, part), part);
    for (auto const* part : {"\nProgram", "\nParameters", "\nSearch", "\nTrajectory", "Under other options"})
        CHECK_MESSAGE(!contains(text, part), part);
}

TEST_CASE("words say who takes how much, and who is left out") {
    auto p = test::layers_plan(test::two_devices(), {0.5, 0.5});
    auto const shares = [&] { return words_of(p).front(); };
    CHECK(shares().label == "shares");
    CHECK(shares().text == "even: each of 2 devices takes 50.00 %");
    p.ratios = {{std::nextafter(0.5, 0), 0.5}, {0.5, 0.5}};
    CHECK(shares().text == "even: each of 2 devices takes 50.00 %");
    p.ratios = {{1, 0}};
    CHECK(shares().text == "uneven: 1 x fast takes 100.00 %; 1 x slow is left out");
    p.ratios = {{0.5, 0.5}, {0.75, 0.25}};
    CHECK(shares().text == "uneven: 1 x fast takes 50.00 to 75.00 %; 1 x slow takes 25.00 to 50.00 %");
    p.provenance.training.micro_batches = 2;
    CHECK(words_of(p).back().label == "in turn");
}

TEST_CASE("a parameter that is cut as sent rows are is of experts") {
    auto p = test::layers_plan();
    auto const head =
        static_cast<tensor_id>(algorithm::find(p.tensors, "head.weight", &plan_tensor::name) - p.tensors.begin());
    auto const of_head = [&] { return way_of(*algorithm::find(parameter_uses(p), head, &parameter_use::tensor)); };
    CHECK(of_head() == "tensor parallel");
    auto const computed = algorithm::find_if(p.steps, [&](plan_step const& s) {
        return s.instruction.is<instruction::compute>() && p.operators[s.computation().op] == "head";
    });
    REQUIRE(computed != p.steps.end());
    computed->step.forward_transfers.push_back({collective::all_to_all, bytes(1), {}, {}});
    CHECK(of_head() == "expert parallel");
}

TEST_CASE("times are measured, so they can be left out") {
    auto p = test::layers_plan();
    auto const without = table_of(p);
    CHECK(contains(table_of(p, {}), "\n  0.123 seconds\n"));
    CHECK(!contains(without, "0.123"));
    p.statistics.seconds = 7;
    CHECK(table_of(p) == without);
}

TEST_CASE("the list of operators can be left out") {
    CHECK(!contains(table_of(test::layers_plan(), {.program = false}), "linear_0"));
    CHECK(contains(table_of(test::layers_plan(), {.program = false}), "sharded, gathered for use"));
}

TEST_CASE("the stream's locale and flags change nothing") {
    auto const p = test::layers_plan();
    std::ostringstream out;
    out.imbue(std::locale(std::locale::classic(), new decimal_comma));
    out << std::hex << std::showpos << std::setprecision(2) << std::setw(40) << std::setfill('*');
    print(out, p, {.times = false});
    CHECK(out.str() == table_of(p));
}

TEST_CASE("every status prints as this line") {
    auto p = test::layers_plan();
    SUBCASE("a limit is named") {
        p.status = search::status::limit;
        p.which_limit = search::limit_kind::time;
        CHECK(contains(table_of(p), "limit (time)\n"));
    }
    SUBCASE("without a bound there is no gap") {
        p.lower_bound = 0;
        CHECK(contains(table_of(p), "lower bound            none\n"));
        CHECK(!contains(table_of(p), "gap"));
    }
    SUBCASE("an infeasible plan prints its reason, broken into lines") {
        p.steps.clear();
        p.status = search::status::infeasible;
        for (int n = 0; n < 40; ++n) p.reason += "device " + std::to_string(n) + " is full ";
        auto const text = table_of(p);
        CHECK(contains(text, "status                 infeasible\nreason                 device 0 is full"));
        CHECK(contains(text, "device 39 is full\n"));
        CHECK(!contains(text, "Time by term"));
        CHECK(!contains(text, "Devices"));
    }
    SUBCASE("a limit at which nothing was found") {
        p.steps.clear();
        p.status = search::status::limit;
        p.which_limit = search::limit_kind::labels;
        CHECK(contains(table_of(p), "limit (labels; nothing found)\n"));
        CHECK(!contains(table_of(p), "seconds per iteration"));
    }
    SUBCASE("status and gap say what they are of") {
        p.space = "one-axis programs at these shares";
        p.status = search::status::optimal;
        CHECK(contains(table_of(p), "status                 optimal among one-axis programs at these shares\n"));
        CHECK(contains(table_of(p), "gap                    3.12 % among one-axis programs at these shares\n"));
        p.steps.clear();
        p.status = search::status::limit;
        p.which_limit = search::limit_kind::stopped;
        CHECK(contains(table_of(p), "limit (stopped; nothing found) among one-axis programs at\n"));
    }
    SUBCASE("a baseline beyond all measure") {
        p.baselines["DP-EV"] = std::numeric_limits<double>::max();
        p.time = {.compute = 0.1};
        CHECK(contains(table_of(p), "more than 1.79769e+308 times the plan\n"));
        p.baselines["DP-EV"] = std::numeric_limits<double>::infinity();
        CHECK(contains(table_of(p), "more than 1.79769e+308 times the plan\n"));
        CHECK(!contains(table_of(p), "inf times"));
    }
    SUBCASE("a default plan") { CHECK(contains(table_of(plan()), "infeasible")); }
    check_layout(table_of(p));
}

TEST_CASE("neighbours of one type with equal columns share a row") {
    auto c = test::two_devices();
    c.machines = {{0, 1, 2}, {1, 1, 3}};
    auto const row = [&](std::string const& text, std::string const& start) {
        auto const at = text.find("\n  " + start + "  ");
        return at == std::string::npos ? std::string() : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
    };
    auto p = test::layers_plan(c, {0.25, 0.25, 0.125, 0.125, 0.25});
    auto text = table_of(p);
    CHECK(contains(row(text, "0-1   "), "fast  0.2500"));
    CHECK(contains(row(text, "2-3   "), "slow  0.1250"));
    CHECK(contains(row(text, "4     "), "slow  0.2500"));
    p.memory[1].inputs += 1e6;
    text = table_of(p);
    CHECK(row(text, "0-1   ").empty());
    CHECK(!row(text, "0     ").empty());
    CHECK(!row(text, "1     ").empty());
}

TEST_CASE("repeated operators are written once") {
    auto const p = test::layers_plan();
    auto const repeated = [&](std::vector<int> const& layers) {
        plan q = p;
        q.steps.clear();
        q.operators.clear();
        for (int n : layers) {
            auto s = p.steps[n == 0 ? 3 : 4];
            s.instruction.as<instruction::compute>()->op = static_cast<operator_id>(q.operators.size());
            q.operators.push_back((n == 0 ? "a" : n == 1 ? "b" : "c") + std::to_string(q.operators.size()));
            q.steps.push_back(std::move(s));
        }
        auto const text = table_of(q);
        auto const begin = text.find("converted before\n") + 17;
        std::string names;
        std::istringstream lines(text.substr(begin, text.find("\n\nSearch") - begin));
        for (std::string line; std::getline(lines, line);)
            names += (names.empty() ? "" : "|") + line.substr(2, line.find("  ", line.find_first_not_of(' ')) - 2);
        return names;
    };
    CHECK(repeated({0, 1, 2}) == "a0|b1|c2");
    CHECK(repeated({0, 0, 0, 1}) == "a0 x3|b3");
    CHECK(repeated({0, 1, 0, 1, 0, 1, 2}) == "x3:|  a0|  b1|c6");
    CHECK(repeated({2, 0, 0, 1, 0, 0, 1}) == "c0|x2:|  a1 x2|  b3");
    CHECK(repeated({0, 1, 1, 0, 1, 1, 0}) == "x2:|  a0|  b1 x2|a6");
    CHECK(repeated({0, 1, 2, 0, 1, 2, 1}) == "x2:|  a0|  b1|  c2|b6");
}

TEST_CASE("every conversion has a name") {
    auto p = test::layers_plan();
    auto const after = [&](tensor_form from, tensor_form to) {
        auto q = p;
        q.steps.back().instruction = instruction::convert(0, from, to);
        auto const text = table_of(q);
        auto const begin = text.find_first_not_of(' ', text.find("(end)") + 5), end = text.find(',', begin);
        CHECK(text.substr(end, 9) == ", 197 MB\n");
        auto const name = text.substr(begin, end - begin);
        return name.ends_with(" x") ? name.substr(0, name.size() - 2) : name;
    };
    auto const whole = tensor_form::replicated(), cut = tensor_form::shard(0), mirrored = tensor_form::mirrored(),
               partial = tensor_form::partial();
    CHECK(after(whole, cut) == "slice");
    CHECK(after(whole, partial) == "mask");
    CHECK(after(whole, mirrored) == "mirror");
    CHECK(after(partial, cut) == "reduce_scatter");
    CHECK(after(mirrored, whole) == "backward all_reduce");
    CHECK(after(mirrored, cut) == "backward all_gather");
    CHECK(after(mirrored, partial) == "mask");
    CHECK(after(cut, tensor_form::shard(1)) == "all_to_all");
    CHECK(after(cut, mirrored) == "all_gather");
}

TEST_CASE("every way to store a parameter has a name") {
    auto p = test::layers_plan();
    for (auto& s : p.steps)
        if (auto* read = s.instruction.as<instruction::read>(); read && read->to == tensor_form::replicated())
            read->to = read->tensor == 4 ? tensor_form::mirrored() : tensor_form::partial();
    auto const text = table_of(p);
    CHECK(contains(text, "  mirrored                          1  0.268\n"));
    CHECK(contains(text, "  replicated, masked for use        1  0.268\n"));
    for (auto const& use : parameter_uses(p)) CHECK(use.stored[0] != tensor_form::partial());
    CHECK(!contains(text, "  replicated    "));
}

TEST_CASE("every way to update a parameter in shards has a name") {
    constexpr tensor_form cut = tensor_form::shard(0), whole = tensor_form::replicated();
    auto p = test::layers_plan();
    std::size_t reads = 0, first = 0;
    for (std::size_t n = 0; n < p.steps.size(); ++n) {
        auto& i = p.steps[n].instruction;
        if (auto const* convert = i.as<instruction::convert>(); convert && convert->from == cut && convert->tensor == 1)
            first = n;
        if (auto const* read = i.as<instruction::read>(); read && read->to == whole)
            i = instruction::read(read->tensor, cut, reads++ ? tensor_form::mirrored() : whole);
    }
    auto const stored = [&](instruction const& i) {
        p.steps[first].instruction = i;
        return table_of(p);
    };
    auto const once = stored(instruction::unshard(1, cut, whole, false)),
               twice = stored(instruction::unshard(1, cut, whole, true));
    CHECK(contains(once, "  replicated, optimizer sharded        1  0.268\n"));
    CHECK(contains(once, "  mirrored, optimizer sharded          1  0.268\n"));
    CHECK(contains(once, "  sharded, gathered once               1  0.268\n"));
    CHECK(contains(once, "unshard ..s.0.weight, 268 MB"));
    CHECK(contains(twice, "  sharded, gathered twice              1  0.268\n"));
    CHECK(contains(twice, "gather twice "));
}

TEST_CASE("strange names and numbers keep the layout") {
    auto p = test::layers_plan();
    std::string const long_name =
        "a/very\nlong name with \xc3\xa4\xc3\xb6\xc3\xbc " + std::string(150, 'x') + "\xc3\x9f tail";
    p.provenance.model = p.provenance.cluster = p.provenance.planner = long_name;
    for (auto& d : p.devices) d.type = long_name;
    for (auto& t : p.tensors) t.name = long_name;
    for (auto& o : p.operators) o = long_name;
    p.baselines[long_name] = 1e300;
    p.baselines["nan"] = std::numeric_limits<double>::quiet_NaN();
    p.trajectory.push_back({long_name, {}, std::numeric_limits<double>::infinity()});
    p.warnings.push_back(long_name + " " + long_name);
    for (auto& m : p.memory) m.activations = 1e14;
    for (auto& s : p.steps)
        if (auto* compute = s.instruction.as<instruction::compute>())
            for (int n = 0; n < 3; ++n)
                compute->operands.insert(compute->operands.end(),
                                         {tensor_form::partial(), tensor_form::shard(7), tensor_form::mirrored()});
    check_layout(table_of(p));
    check_layout(table_of(p, {}));
}

TEST_CASE("rounding leaves no negative zero") {
    CHECK(detail::fixed(-1e-9, 3) == "0.000");
    CHECK(detail::fixed(-1.5, 1) == "-1.5");
    CHECK(detail::fixed(2.5e20, 3) == "2.5e+20");
    CHECK(detail::clip("abcdefgh", 8) == "abcdefgh");
    CHECK(detail::clip("abcdefghi", 8) == "..defghi");
    CHECK(detail::clip("\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f", 3) == "..\xc3\x9f");
}

TEST_CASE("what is too long for its column goes on in the next line, and nothing of it is lost") {
    CHECK(detail::wrap("one two three", 13) == std::vector<std::string>{"one two three"});
    CHECK(detail::wrap("one two three", 7) == std::vector<std::string>{"one two", "three"});
    CHECK(detail::wrap("overlong two", 6) == std::vector<std::string>{"..long", "two"});
    CHECK(detail::wrap("", 6) == std::vector<std::string>{""});
    CHECK(detail::wrap("          ", 6) == std::vector<std::string>{""});
    detail::text_columns table("lrl");
    table.add({"a", "12", "why there is none of this"});
    table.add({"b", "3", "short"});
    CHECK(table.print(2, 2, 21) == "  a  12  why there is\n         none of this\n  b   3  short\n");
}

TEST_CASE("reasons and strategies are printed whole") {
    staged_plan p;
    p.status = search::status::infeasible;
    std::string const reason = "micro-batches, operator 'pad': does not add up over parts of the batch that run one "
                               "after the other, expected a loss that is a sum or mean over the batch";
    p.families["turns"].reason = reason;
    std::ostringstream out;
    print(out, p, {.times = false});
    std::istringstream words(out.str());
    std::string all;
    for (std::string word; words >> word;) all += word + ' ';
    CHECK(contains(all, reason));
    check_layout(out.str());
}
